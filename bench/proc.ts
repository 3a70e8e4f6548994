// Reader of /proc: descendants, memory and CPU time of processes and threads. Linux only; elsewhere, and for processes that have
// ended, it returns nothing or zero.
import { readdirSync, readFileSync } from "node:fs";

/** The processes and all their descendants, each once. */
export function family(pids: readonly number[]): number[] {
  const found = new Set(pids);
  for (const pid of found) for (const child of childrenOf(pid)) found.add(child);
  return [...found];
}

/** Children are listed by the thread that started them. */
export function childrenOf(pid: number): number[] {
  return threadsOf(pid).flatMap((thread) => {
    const list = orElse(() => readFileSync(`/proc/${pid}/task/${thread}/children`, "utf8"), "").trim();
    return list === "" ? [] : list.split(" ").map(Number);
  });
}

export function threadsOf(pid: number): number[] {
  return orElse(() => readdirSync(`/proc/${pid}/task`), []).map(Number);
}

/** Resident memory of a process. */
export function residentKiB(pid: number): number {
  return kibIn(statusOf(pid), "VmRSS");
}

/** The same without the pages of files, which the system takes back when it needs them. */
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

/** Seconds a thread has computed, to the nanosecond: the times in `stat` are sampled, and miss what is done in short bursts. */
export function threadSeconds(pid: number, thread: number): number {
  const text = orElse(() => readFileSync(`/proc/${pid}/task/${thread}/schedstat`, "utf8"), "0");
  return Number(text.split(" ")[0]) / 1e9;
}

/** Seconds the present threads of a process have computed. */
export function processSeconds(pid: number): number {
  return threadsOf(pid).reduce((sum, thread) => sum + threadSeconds(pid, thread), 0);
}

/** What is looked at may end meanwhile. */
function orElse<T>(read: () => T, otherwise: T): T {
  try {
    return read();
  } catch {
    return otherwise;
  }
}
