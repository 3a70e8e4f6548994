// Priority of this process among the processes of the server.
import { readFileSync, writeFileSync } from "node:fs";
import { setPriority } from "node:os";

/**
 * Lowers the priority of this process, to a niceness of 1..19. On Linux the scheduler may share the processor between sessions first
 * (autogroups); a place that is a process leads a session of its own, so the session gets the niceness too. Errors are ignored: where
 * the system does not allow the change, the process competes like any other.
 */
export function lowerOwnPriority(niceness: number): void {
  try {
    setPriority(niceness);
  } catch {}
  try {
    const own = "/proc/self/autogroup";
    // A group that is shared with the parent process would lower that too.
    if (groupIn(own) !== groupIn(`/proc/${process.ppid}/autogroup`)) writeFileSync(own, String(niceness));
  } catch {}
}

/** Returns the name of an autogroup: `/autogroup-12 nice 0` has `/autogroup-12`. */
function groupIn(path: string): string {
  return readFileSync(path, "utf8").split(" ")[0] ?? "";
}
