// Usage of a confined command: bytes and entries in its folders, and memory and number of its processes, read from /proc. Used by
// the watcher where no control group enforces a limit.
import { type Dirent, lstatSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

export interface DiskUsage {
  readonly bytes: number;
  readonly entries: number;
}

/** Returns the usage of folders; counting ends when it exceeds `limit`. Folders that vanish meanwhile count as empty. */
export function diskUsage(folders: readonly string[], limit: DiskUsage): DiskUsage {
  let bytes = 0;
  let entries = 0;
  const open = [...folders];
  for (let folder = open.pop(); folder !== undefined; folder = open.pop()) {
    let found: Dirent[];
    try {
      found = readdirSync(folder, { withFileTypes: true });
    } catch {
      continue;
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

/** Returns the bytes that a file occupies. A sparse file occupies less than its size. */
function allocatedBytes(path: string): number {
  try {
    return lstatSync(path).blocks * 512;
  } catch {
    return 0;
  }
}

export interface ProcessUsage {
  readonly memoryBytes: number;
  readonly processes: number;
}

const PAGE_BYTES = 4096;

/** Returns the usage of a process and its descendants: resident memory, and threads. */
export function processUsage(root: number): ProcessUsage {
  let memoryBytes = 0;
  let processes = 0;
  const open = [root];
  for (let pid = open.pop(); pid !== undefined; pid = open.pop()) {
    try {
      const [, resident = "0"] = readFileSync(`/proc/${pid}/statm`, "utf8").split(" ");
      memoryBytes += Number(resident) * PAGE_BYTES;
      processes += readdirSync(`/proc/${pid}/task`).length;
      open.push(...childrenOf(pid));
    } catch {
      // The process has ended meanwhile.
    }
  }
  return { memoryBytes, processes };
}

/** Returns the process ids of the children of a process; empty if it has ended. */
function childrenOf(pid: number): readonly number[] {
  try {
    return readdirSync(`/proc/${pid}/task`).flatMap((thread) => {
      const children = readFileSync(`/proc/${pid}/task/${thread}/children`, "utf8").trim();
      return children === "" ? [] : children.split(" ").map(Number);
    });
  } catch {
    return [];
  }
}
