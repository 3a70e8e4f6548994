// Abandoned bubblewrap processes. If a server is killed while bwrap starts a command, bwrap's child can wait forever for its
// dead parent to write the ids of the user namespace (--die-with-parent takes effect later). The child runs no command, but
// never exits. The next start of the server kills it.
import { readFileSync, statSync } from "node:fs";
import { basename, dirname } from "node:path";
import { isAbandonedFolder } from "../../host/process-folder.ts";
import { namesIn } from "../kernel-files.ts";

/**
 * Kills this user's bwrap processes that dead servers have left. The arguments of such a process name a process folder
 * of this kind, and the process that created the folder is dead. Linux only.
 */
export function endAbandonedBubblewraps(kind: string): void {
  for (const pid of namesIn("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      if (statSync(`/proc/${pid}`).uid !== process.getuid?.()) continue;
      const [program = "", ...args] = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
      if (basename(program) !== "bwrap") continue;
      if (args.some((arg) => isAbandonedFolder(kind, basename(dirname(arg))))) process.kill(Number(pid), "SIGKILL");
    } catch {
      // The process has ended.
    }
  }
}
