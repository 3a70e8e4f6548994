// Reader of /proc: descendants, memory and CPU time of processes and threads. Linux only. On other systems, and for processes
// that have ended, it returns nothing or zero.
import { readdirSync, readFileSync } from "node:fs";

/** Returns the processes and all their descendants, each once. */
export function family(pids: readonly number[]): number[] {
  const found = new Set(pids);
  for (const pid of found) for (const child of childrenOf(pid)) found.add(child);
  return [...found];
}

/** Returns the child processes. /proc lists them by the thread that started them. */
export function childrenOf(pid: number): number[] {
  return threadsOf(pid).flatMap((thread) => {
    const list = orElse(() => readFileSync(`/proc/${pid}/task/${thread}/children`, "utf8"), "").trim();
    return list === "" ? [] : list.split(" ").map(Number);
  });
}

/** Returns false for a process that has ended, also if its parent has not read its exit code yet (a zombie). */
export function isRunning(pid: number): boolean {
  const stat = orElse(() => readFileSync(`/proc/${pid}/stat`, "utf8"), "");
  // The state follows the name, which is in parentheses and may contain any character.
  return stat !== "" && stat[stat.lastIndexOf(")") + 2] !== "Z";
}

export function threadsOf(pid: number): number[] {
  return orElse(() => readdirSync(`/proc/${pid}/task`), []).map(Number);
}

/** Resident memory of a process. */
export function residentKiB(pid: number): number {
  return kibIn(statusOf(pid), "VmRSS");
}

/** Resident memory without the pages of files, which the system can take back at any time. */
export function ownKiB(pid: number): number {
  const status = statusOf(pid);
  return kibIn(status, "RssAnon") + kibIn(status, "RssShmem");
}

function statusOf(pid: number): string {
  return orElse(() => readFileSync(`/proc/${pid}/status`, "utf8"), "");
}

function kibIn(status: string, name: string): number {
  return Number(new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(status)?.[1] ?? 0);
}

/** Name that a process has set, or its program's. */
export function nameOf(pid: number): string {
  return orElse(() => readFileSync(`/proc/${pid}/comm`, "utf8"), "").trim();
}

/** CPU seconds of a thread, to the nanosecond. The times in `stat` are sampled and miss short bursts. */
export function threadSeconds(pid: number, thread: number): number {
  const text = orElse(() => readFileSync(`/proc/${pid}/task/${thread}/schedstat`, "utf8"), "0");
  return Number(text.split(" ")[0]) / 1e9;
}

/** CPU seconds of the current threads of a process. */
export function processSeconds(pid: number): number {
  return threadsOf(pid).reduce((sum, thread) => sum + threadSeconds(pid, thread), 0);
}

/** Returns `otherwise` if `read` fails, because the process may end at any time. */
function orElse<T>(read: () => T, otherwise: T): T {
  try {
    return read();
  } catch {
    return otherwise;
  }
}
