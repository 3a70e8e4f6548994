// Control groups (cgroups, version 1 or 2): limits of memory and processes that hold for all processes of a command together.
// They are used where the server may create groups; otherwise the watcher (usage.ts) enforces the limits.
import { accessSync, constants, mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

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

const mount = "/sys/fs/cgroup";

/** Returns where groups may be created; null: nowhere. */
export function groupRoots(): GroupRoots | null {
  let own: string;
  try {
    own = readFileSync("/proc/self/cgroup", "utf8");
  } catch {
    return null;
  }
  const lines = own
    .trim()
    .split("\n")
    .map((line) => line.split(":"));
  const unified = lines.find(([id]) => id === "0")?.[2];
  if (unified !== undefined) {
    const folder = join(mount, unified);
    const controllers = textOf(join(folder, "cgroup.subtree_control"));
    if (controllers.includes("memory") && controllers.includes("pids") && isWritable(folder)) {
      return { version: 2, memory: folder, processes: folder };
    }
  }
  const of = (controller: string): string | null => {
    const path = lines.find(([, names]) => names?.split(",").includes(controller))?.[2];
    if (path === undefined) return null;
    // In a container the path may be the host's, while the mount shows only the container's own groups.
    return [join(mount, controller, path), join(mount, controller)].find(isWritable) ?? null;
  };
  const roots = { version: 1, memory: of("memory"), processes: of("pids") } as const;
  return roots.memory === null && roots.processes === null ? null : roots;
}

export class ControlGroup {
  readonly #folders: readonly string[];
  readonly #roots: GroupRoots;
  readonly #name: string;

  private constructor(roots: GroupRoots, name: string, folders: readonly string[]) {
    this.#roots = roots;
    this.#name = name;
    this.#folders = folders;
  }

  /** Creates a group; null: it cannot be created now. */
  static create(roots: GroupRoots, name: string, { memoryBytes, processes }: GroupLimits): ControlGroup | null {
    const folders = [...new Set([roots.memory, roots.processes].filter((root) => root !== null))].map((root) =>
      join(root, name),
    );
    const group = new ControlGroup(roots, name, folders);
    try {
      for (const folder of folders) mkdirSync(folder);
      if (roots.memory !== null) {
        const file = roots.version === 2 ? "memory.max" : "memory.limit_in_bytes";
        writeFileSync(join(roots.memory, name, file), String(memoryBytes));
        if (roots.version === 2) tryToWrite(join(roots.memory, name, "memory.swap.max"), "0");
      }
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

  /** Whether the kernel has killed a process of the group because the memory limit was reached. */
  get wasOutOfMemory(): boolean {
    const { memory, version } = this.#roots;
    if (memory === null) return false;
    const text = textOf(join(memory, this.#name, version === 2 ? "memory.events" : "memory.oom_control"));
    return Number(/^oom_kill (\d+)$/m.exec(text)?.[1] ?? 0) > 0;
  }

  /** Whether a process of the group could not start another one because of the limit. */
  get wasOutOfProcesses(): boolean {
    const { processes } = this.#roots;
    if (processes === null) return false;
    return Number(/^max (\d+)$/m.exec(textOf(join(processes, this.#name, "pids.events")))?.[1] ?? 0) > 0;
  }

  /** Removes the group. Call it when its processes have ended; the kernel may need a moment. */
  remove(attempts = 20): void {
    for (const folder of this.#folders) {
      try {
        rmdirSync(folder);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === "EBUSY" && attempts > 0) {
          setTimeout(() => this.remove(attempts - 1), 25).unref();
          return;
        }
      }
    }
  }
}

function isWritable(folder: string): boolean {
  try {
    accessSync(folder, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

function textOf(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

function tryToWrite(path: string, text: string): void {
  try {
    writeFileSync(path, text);
  } catch {
    // The kernel has no swap accounting.
  }
}
