// Priority of this process among the processes of the server.
import { readFileSync, writeFileSync } from "node:fs";
import { setPriority } from "node:os";

/**
 * Lowers the priority of this process to a niceness of 1..19. Linux may first divide processor time between sessions
 * (autogroups) and only then between the processes of a session. A child process of the server leads its own session, so the
 * niceness is also set for this session. Errors are ignored: if the system does not allow the change, the process keeps its
 * normal priority.
 */
export function lowerOwnPriority(niceness: number): void {
  try {
    setPriority(niceness);
  } catch {}
  try {
    const own = "/proc/self/autogroup";
    // Skip an autogroup that the parent process shares, because the parent's priority would be lowered too.
    if (groupIn(own) !== groupIn(`/proc/${process.ppid}/autogroup`)) writeFileSync(own, String(niceness));
  } catch {}
}

/** Returns the name of an autogroup, for example `/autogroup-12` from the file content `/autogroup-12 nice 0`. */
function groupIn(path: string): string {
  return readFileSync(path, "utf8").split(" ")[0] ?? "";
}
