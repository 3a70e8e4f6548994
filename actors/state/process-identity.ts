// Process identity: tells whether the process that wrote an entry is still running. The system reuses process ids, so on Linux the
// identity includes the start time. Processes that share a folder must run on one machine and see each other's ids.
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
    // EPERM: it exists, and belongs to another user.
    if ((error as NodeJS.ErrnoException).code !== "EPERM") return false;
  }
  return startOf(number) === start;
}

/**
 * Clock ticks from boot to the start of a process; "" if unknown. null for a zombie: a process that has ended and that its parent
 * has not yet waited for.
 */
function startOf(pid: number): string | null {
  try {
    const status = readFileSync(`/proc/${pid}/stat`, "latin1");
    // The name in parentheses may contain any characters.
    const fields = status.slice(status.lastIndexOf(")") + 2).split(" ");
    return fields[0] === "Z" || fields[0] === "X" ? null : (fields[19] ?? "");
  } catch {
    return "";
  }
}
