// Shell tool: runs commands one after another, each in a confined process of its own.
import type { ConfinedProcess, Sandbox } from "../../runtime/sandbox/sandbox.ts";
import { BoundedText } from "./bounded-text.ts";

/** Maximum number of characters of each output of a command. */
const MAX_OUTPUT = 65_536;

export interface CommandResult {
  readonly stdout: string;
  readonly stderr: string;
  readonly outcome: { readonly type: "exit"; readonly exit_code: number } | { readonly type: "timeout" };
  /** Limit that ended the command; null: none. */
  readonly limit: string | null;
}

export interface ShellOptions {
  readonly sandbox: Sandbox;
  readonly shellPath: string;
  readonly workFolder: string;
  readonly timeoutMs: number;
  /** Maximum number of characters of each output that the model asked for; null: the tool's own. */
  readonly maxOutput: number | null;
  /** Receives each process, so that the call can be cancelled. */
  readonly onStart: (process: ConfinedProcess) => void;
}

/** Exit code of a command that was killed by signal number n: 128 + n, as shells report it. */
const KILLED = 137;

export async function runCommand(command: string, options: ShellOptions): Promise<CommandResult> {
  const { sandbox, shellPath, workFolder, timeoutMs, maxOutput, onStart } = options;
  const running = sandbox.launch({ argv: [shellPath, "-c", command], workFolder });
  onStart(running);
  running.stdin.end();
  const outputs = [running.stdout, running.stderr].map((stream) => {
    const text = new BoundedText(Math.min(maxOutput ?? MAX_OUTPUT, MAX_OUTPUT));
    stream.on("error", () => {});
    const ended = new Promise<void>((resolve) => {
      stream.once("close", resolve);
    });
    stream.on("data", (chunk: Buffer) => text.add(chunk));
    return { text, ended };
  });
  let isTimeout = false;
  const timer = setTimeout(() => {
    isTimeout = true;
    void running.kill();
  }, timeoutMs);
  const { code, limit } = await running.exited;
  clearTimeout(timer);
  await Promise.all(outputs.map(({ ended }) => ended));
  const [stdout = "", stderr = ""] = outputs.map(({ text }) => text.text);
  const outcome = isTimeout ? ({ type: "timeout" } as const) : ({ type: "exit", exit_code: code ?? KILLED } as const);
  return { stdout, stderr, outcome, limit };
}
