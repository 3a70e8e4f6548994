// Control groups (cgroups, version 1 or 2): memory and process limits that apply to all processes of a command together. They
// are used if the server may create groups; otherwise a watcher (confined-process.ts) enforces the limits.
import { accessSync, constants, mkdirSync, rmdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { isAlive, ownIdentity } from "../../host/process-identity.ts";
import { namesIn, textOf } from "../kernel-files.ts";

export interface GroupLimits {
  readonly memoryBytes: number;
  readonly processes: number;
}

/** Folders below which groups may be created. */
export interface GroupRoots {
  readonly version: 1 | 2;
  readonly memory: string | null;
  readonly processes: string | null;
}

const namePrefix = "troupe-";

/**
 * Returns the folders in which groups may be created; null if there are none. `own`: content of /proc/self/cgroup, lines of the
 * form `id:controllers:path`. `mount`: mount point of the control groups.
 */
export function groupRoots(own: string = textOf("/proc/self/cgroup"), mount = "/sys/fs/cgroup"): GroupRoots | null {
  const lines = own
    .trim()
    .split("\n")
    .map((line) => line.split(":"));
  const unified = lines.find(([id]) => id === "0")?.[2];
  if (unified !== undefined) {
    const path = join(mount, unified);
    // A group with processes cannot have subgroups with limits. If a systemd unit has a subgroup for the server
    // (DelegateSubgroup), groups can be created next to this subgroup. Groups in slices are not created, because slices belong
    // to systemd.
    const parent = /\.(?:service|scope)$/.test(dirname(unified)) ? [dirname(path)] : [];
    const folder = [path, ...parent].find(hasControllers);
    if (folder !== undefined) return { version: 2, memory: folder, processes: folder };
  }
  const of = (controller: string): string | null => {
    const path = lines.find(([, names]) => names?.split(",").includes(controller))?.[2];
    if (path === undefined) return null;
    // In a container, the path may be valid only on the host, because the mount shows only the container's own groups.
    return [join(mount, controller, path), join(mount, controller)].find(isWritable) ?? null;
  };
  const roots = { version: 1, memory: of("memory"), processes: of("pids") } as const;
  return roots.memory === null && roots.processes === null ? null : roots;
}

/** Returns whether groups below the folder can have limits of memory and processes. Enables them if that is possible. */
function hasControllers(folder: string): boolean {
  if (!isWritable(folder)) return false;
  const file = join(folder, "cgroup.subtree_control");
  const isEnabled = (): boolean => {
    const enabled = textOf(file).trim().split(" ");
    return enabled.includes("memory") && enabled.includes("pids");
  };
  if (!isEnabled()) tryToWrite(file, "+memory +pids");
  return isEnabled();
}

/** Removes groups of servers that were killed. */
export function removeAbandonedGroups(roots: GroupRoots): void {
  for (const root of foldersOf(roots)) {
    for (const name of namesIn(root)) {
      const [identity, number] = name.startsWith(namePrefix) ? name.slice(namePrefix.length).split("@") : [];
      if (identity === undefined || number === undefined || isAlive(identity.replace(".", ":"))) continue;
      tryToRemove(join(root, name));
    }
  }
}

let count = 0;

export class ControlGroup {
  readonly #folders: readonly string[];
  readonly #roots: GroupRoots;
  readonly #name: string;

  private constructor(roots: GroupRoots, name: string, folders: readonly string[]) {
    this.#roots = roots;
    this.#name = name;
    this.#folders = folders;
  }

  /** Creates a group; null if it cannot be created now. */
  static create(roots: GroupRoots, { memoryBytes, processes }: GroupLimits): ControlGroup | null {
    // The number `count` alone would not be unique, because each thread of the process has its own count.
    const suffix = Math.random().toString(36).slice(2);
    const name = `${namePrefix}${ownIdentity().replace(":", ".")}@${count++}-${suffix}`;
    const folders = foldersOf(roots).map((root) => join(root, name));
    const group = new ControlGroup(roots, name, folders);
    try {
      for (const folder of folders) mkdirSync(folder);
      if (roots.memory !== null) limitMemory(join(roots.memory, name), roots.version, String(memoryBytes));
      if (roots.processes !== null) writeFileSync(join(roots.processes, name, "pids.max"), String(processes));
      return group;
    } catch {
      group.remove();
      return null;
    }
  }

  /** Files to which a process writes its id to enter the group. */
  get entries(): readonly string[] {
    return this.#folders.map((folder) => join(folder, "cgroup.procs"));
  }

  get limitsMemory(): boolean {
    return this.#roots.memory !== null;
  }

  get limitsProcesses(): boolean {
    return this.#roots.processes !== null;
  }

  /** Whether the kernel has killed a process of the group because the memory limit was reached. */
  get wasOutOfMemory(): boolean {
    const { memory, version } = this.#roots;
    if (memory === null) return false;
    const text = textOf(join(memory, this.#name, version === 2 ? "memory.events" : "memory.oom_control"));
    return Number(/^oom_kill (\d+)$/m.exec(text)?.[1] ?? 0) > 0;
  }

  /** Whether a process of the group could not start another process because of the process limit. */
  get wasOutOfProcesses(): boolean {
    const { processes } = this.#roots;
    if (processes === null) return false;
    return Number(/^max (\d+)$/m.exec(textOf(join(processes, this.#name, "pids.events")))?.[1] ?? 0) > 0;
  }

  /**
   * Removes the group. Call it when the group's processes have ended. Retries for 0.5 s, because the kernel may still count
   * them.
   */
  remove(attempts = 20): void {
    const isBusy = this.#folders.filter((folder) => !tryToRemove(folder)).length > 0;
    if (isBusy && attempts > 0) setTimeout(() => this.remove(attempts - 1), 25).unref();
  }
}

/** Sets the memory limit of a group. If the kernel counts swap, the limit applies to memory and swap together. */
function limitMemory(folder: string, version: 1 | 2, bytes: string): void {
  writeFileSync(join(folder, version === 2 ? "memory.max" : "memory.limit_in_bytes"), bytes);
  if (version === 1) {
    tryToWrite(join(folder, "memory.memsw.limit_in_bytes"), bytes);
    return;
  }
  tryToWrite(join(folder, "memory.swap.max"), "0");
  // At the limit, all processes of the command end together.
  tryToWrite(join(folder, "memory.oom.group"), "1");
}

/** Returns the folders of the roots, each once. With version 2, both roots are the same folder. */
function foldersOf({ memory, processes }: GroupRoots): readonly string[] {
  return [...new Set([memory, processes].filter((root) => root !== null))];
}

function isWritable(folder: string): boolean {
  try {
    accessSync(folder, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

function tryToWrite(path: string, text: string): void {
  try {
    writeFileSync(path, text);
  } catch {
    // The kernel may lack this file, or it may not be delegated. A caller that depends on the write reads the file afterwards.
  }
}

/** Returns whether the group no longer exists. */
function tryToRemove(folder: string): boolean {
  try {
    rmdirSync(folder);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "ENOENT";
  }
}
