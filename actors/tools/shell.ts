// Shell tool: runs each command in a separate sandboxed process.
import { constants } from "node:os";
import type { ConfinedProcess, LimitHit, Sandbox } from "../../runtime/sandbox/sandbox.ts";
import type { BoundedText } from "./bounded-text.ts";
import { foldersOf, type WorkFolder } from "./files/work-folders.ts";
import { ProcessOutput } from "./process-output.ts";

export interface CommandResult {
  /** Stdout of the command; null = the command was not run. */
  readonly stdout: BoundedText | null;
  readonly stderr: BoundedText | null;
  readonly outcome: { readonly type: "exit"; readonly exit_code: number } | { readonly type: "timeout" };
  /** Limit that ended the command; null = no limit was hit. */
  readonly limit: LimitHit;
}

export interface ShellOptions {
  readonly sandbox: Sandbox;
  readonly shellPath: string;
  readonly folder: WorkFolder;
  readonly timeoutMs: number;
  /** Called with the process, so that the call can be cancelled. */
  readonly onStart: (process: ConfinedProcess) => void;
}

/** Result of a command that is not run because the call has no time left. */
export const notRun: CommandResult = { stdout: null, stderr: null, outcome: { type: "timeout" }, limit: null };

export async function runCommand(command: string, options: ShellOptions): Promise<CommandResult> {
  const { sandbox, shellPath, folder, timeoutMs, onStart } = options;
  const running = sandbox.launch({
    argv: [shellPath, "-c", command],
    ...foldersOf(folder),
    mounted: [folder.skills.mount],
  });
  onStart(running);
  running.stdin.end();
  const stdout = new ProcessOutput(running.stdout);
  const stderr = new ProcessOutput(running.stderr);
  let isTimeout = false;
  const timer = setTimeout(() => {
    isTimeout = true;
    void running.kill();
  }, timeoutMs);
  const { code, signal, limit } = await running.exited;
  clearTimeout(timer);
  await Promise.all([stdout.end(), stderr.end()]);
  const outcome = isTimeout
    ? ({ type: "timeout" } as const)
    : ({ type: "exit", exit_code: code ?? exitCodeOf(signal) } as const);
  return { stdout: stdout.text, stderr: stderr.text, outcome, limit };
}

/** Returns the exit code that a shell reports for a command that was ended by a signal. */
function exitCodeOf(signal: NodeJS.Signals | null): number {
  return 128 + (signal === null ? 0 : constants.signals[signal]);
}
