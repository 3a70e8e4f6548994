// Process identity: identifies the process that wrote a record, so that others can check whether this process still runs. The
// system reuses process ids, so on Linux the identity includes the start time. Processes that share a folder must run on one
// machine, in one PID namespace.
import { readFileSync } from "node:fs";

export function ownIdentity(): string {
  return `${process.pid}:${startOf(process.pid)}`;
}

export function isAlive(identity: string): boolean {
  const [pid, start] = identity.split(":");
  const number = Number(pid);
  if (!Number.isSafeInteger(number) || number <= 0) return false;
  try {
    process.kill(number, 0);
  } catch (error) {
    // EPERM: the process exists but belongs to another user.
    if ((error as NodeJS.ErrnoException).code !== "EPERM") return false;
  }
  return startOf(number) === start;
}

/**
 * Returns the start time of a process in clock ticks since boot; "" if unknown. null if the process has ended (it is a zombie:
 * its parent has not yet waited for it).
 */
function startOf(pid: number): string | null {
  try {
    const status = readFileSync(`/proc/${pid}/stat`, "latin1");
    // Fields are split after the last parenthesis, because the process name in parentheses may contain any character.
    const fields = status.slice(status.lastIndexOf(")") + 2).split(" ");
    return fields[0] === "Z" || fields[0] === "X" ? null : (fields[19] ?? "");
  } catch {
    return "";
  }
}
