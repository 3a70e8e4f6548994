// Resource usage of a confined command, for its watcher: bytes and entries in its folders, deleted files that it holds open,
// and memory, number and activity of its processes. The facts about processes are read from /proc.
import { type Dirent, lstatSync, readdirSync, statfsSync, statSync } from "node:fs";
import { join } from "node:path";
import { namesIn, textOf } from "./kernel-files.ts";

export interface DiskUsage {
  readonly bytes: number;
  readonly entries: number;
}

/**
 * Returns the usage of folders; counting ends when it exceeds `limit`. A folder that is removed during the count has size 0. A folder that
 * cannot be listed (no permission, too long a path) could hide any size, so it counts as infinite.
 */
export function diskUsage(folders: readonly string[], limit: DiskUsage): DiskUsage {
  let bytes = 0;
  let entries = 0;
  const open = [...folders];
  for (let folder = open.pop(); folder !== undefined; folder = open.pop()) {
    let found: Dirent[];
    try {
      found = readdirSync(folder, { withFileTypes: true });
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === "ENOENT" || code === "ENOTDIR") continue;
      return { bytes: Number.POSITIVE_INFINITY, entries };
    }
    entries += found.length;
    for (const entry of found) {
      const path = join(folder, entry.name);
      if (entry.isDirectory()) open.push(path);
      else bytes += allocatedBytes(path);
      if (bytes > limit.bytes || entries > limit.entries) return { bytes, entries };
    }
  }
  return { bytes, entries };
}

const BLOCK_BYTES = 512;

/** Returns the bytes that a file occupies. A sparse file occupies less than its size. */
function allocatedBytes(path: string): number {
  try {
    return lstatSync(path).blocks * BLOCK_BYTES;
  } catch {
    return 0;
  }
}

/** Returns the bytes of deleted files on the file system of `folder` that the processes hold open. */
export function deletedBytes(processes: readonly number[], folder: string): number {
  const device = deviceOf(folder);
  const found = new Map<number, number>();
  for (const pid of processes) {
    for (const descriptor of namesIn(`/proc/${pid}/fd`)) {
      try {
        const stat = statSync(`/proc/${pid}/fd/${descriptor}`);
        if (stat.nlink === 0 && stat.dev === device) found.set(stat.ino, stat.blocks * BLOCK_BYTES);
      } catch {
        // The process has closed this descriptor since the descriptors were listed.
      }
    }
  }
  return [...found.values()].reduce((sum, bytes) => sum + bytes, 0);
}

function deviceOf(folder: string): number | null {
  try {
    return statSync(folder).dev;
  } catch {
    return null;
  }
}

/** Returns the bytes that are free on the file system of a folder. Infinity if unknown. */
export function freeBytes(folder: string): number {
  try {
    const { bavail, bsize } = statfsSync(folder);
    return bavail * bsize;
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}

/**
 * Returns an upper bound of the bytes that the processes, and their descendants that have ended, have written to files. The
 * bound includes bytes written to pipes. Infinity if unknown.
 */
export function writtenBytes(processes: readonly number[]): number {
  return processes.reduce((sum, pid) => {
    const [, passed, dirtied] = /^wchar: (\d+)$[\s\S]*^write_bytes: (\d+)$/m.exec(textOf(`/proc/${pid}/io`)) ?? [];
    return sum + (passed === undefined ? Number.POSITIVE_INFINITY : Number(passed) + Number(dirtied));
  }, 0);
}

/** Returns a process and its descendants. */
export function processTree(root: number): readonly number[] {
  const found: number[] = [];
  const open = [root];
  for (let pid = open.pop(); pid !== undefined; pid = open.pop()) {
    found.push(pid);
    for (const thread of namesIn(`/proc/${pid}/task`)) {
      const children = textOf(`/proc/${pid}/task/${thread}/children`).trim();
      if (children !== "") open.push(...children.split(" ").map(Number));
    }
  }
  return found;
}

/** Returns the number of threads of the processes. A process has at least one. */
export function threadCount(processes: readonly number[]): number {
  return processes.reduce((sum, pid) => sum + namesIn(`/proc/${pid}/task`).length, 0);
}

const PAGE_BYTES = 4096;

/**
 * Returns the resident memory of the processes in bytes. The exact number is determined only if an upper bound exceeds `limit`.
 */
export function memoryOf(processes: readonly number[], limit: number): number {
  const resident = processes.reduce((sum, pid) => sum + residentBytes(pid), 0);
  // In this sum, a page that several processes share counts for each of them. The kernel needs more time for the exact number.
  return resident <= limit ? resident : processes.reduce((sum, pid) => sum + proportionalBytes(pid), 0);
}

function residentBytes(pid: number): number {
  const [, resident = "0"] = textOf(`/proc/${pid}/statm`).split(" ");
  return Number(resident) * PAGE_BYTES;
}

/** Returns the resident memory of a process in bytes. A page that n processes share counts 1/n. */
function proportionalBytes(pid: number): number {
  const kib = /^Pss:\s*(\d+) kB$/m.exec(textOf(`/proc/${pid}/smaps_rollup`))?.[1];
  return kib === undefined ? residentBytes(pid) : Number(kib) * 1024;
}

/**
 * Returns a text that changes when a process uses 10 ms or more of processor time, or starts a child. Returns null if the
 * process has children, because the text does not show their activity.
 */
export function activityOf(pid: number): string | null {
  if (processTree(pid).length > 1) return null;
  const stat = textOf(`/proc/${pid}/stat`);
  // The fields follow the name of the program, which is in parentheses: utime, stime, cutime and cstime.
  return stat
    .slice(stat.lastIndexOf(")") + 2)
    .split(" ")
    .slice(11, 15)
    .join(" ");
}
