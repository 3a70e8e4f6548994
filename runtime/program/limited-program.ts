// Limited program: runs a Node.js program of this package, or another command, in a child process. Used to parse untrusted
// input, which may exploit bugs of the parser. The process gets an empty environment. It is killed when it exceeds its limit of
// time, memory or output.
import { spawn } from "node:child_process";
import { memoryOf } from "../sandbox/usage.ts";
import { type Command, limitedCommand } from "./limited-command.ts";

const watchMs = 50;
/** Maximum number of characters of the error output that are kept. */
const maxErrorLength = 4096;

export interface CommandLimits {
  readonly timeMs: number;
  /** Limit of the processor time in seconds. The kernel enforces it, even if this server has been killed. */
  readonly cpuSeconds: number;
  /** Limit of the resident memory in bytes. */
  readonly memoryBytes: number;
  readonly outputBytes: number;
}

export interface ProgramLimits extends CommandLimits {
  /** Limit of the JavaScript heap in MiB. */
  readonly heapMiB: number;
}

interface CommandRun {
  readonly limits: CommandLimits;
  /** Bytes for stdin; absent if there is none. */
  readonly input?: Uint8Array;
  /** Aborting this signal kills the process. */
  readonly signal?: AbortSignal;
}

export interface ProgramRun extends CommandRun {
  readonly args: readonly string[];
  readonly limits: ProgramLimits;
}

export interface ProgramResult {
  /** Bytes that the program wrote to stdout, even if it failed. */
  readonly output: Buffer;
  /**
   * Reason of the failure: the limit that was exceeded, or the beginning of the program's stderr output. null if the program
   * succeeded.
   */
  readonly failure: string | null;
}

/** Runs the program at `path`. Never rejects. */
export async function runLimitedProgram(path: string, { args, ...run }: ProgramRun): Promise<ProgramResult> {
  return await runLimitedCommand([process.execPath, `--max-old-space-size=${run.limits.heapMiB}`, path, ...args], run);
}

/** Runs a command whose first element is the path of an executable. Never rejects. */
export async function runLimitedCommand(
  command: Command,
  { limits, input, signal }: CommandRun,
): Promise<ProgramResult> {
  const { timeMs, cpuSeconds, memoryBytes, outputBytes } = limits;
  const [file, ...rest] = limitedCommand(command, cpuSeconds);
  const child = spawn(file, rest, { env: {}, stdio: ["pipe", "pipe", "pipe"] });
  const failed = new Promise<string>((resolve) => void child.once("error", ({ message }) => resolve(message)));
  // Without free file descriptors there is neither a process nor pipes to it.
  if (child.pid === undefined) return { output: Buffer.alloc(0), failure: await failed };
  let verdict: string | null = null;
  const end = (reason: string): void => {
    verdict ??= reason;
    child.kill("SIGKILL");
  };
  const cancel = (): void => end("it was cancelled");
  signal?.addEventListener("abort", cancel, { once: true });
  if (signal?.aborted) cancel();
  const timer = setTimeout(() => end(`it takes longer than ${timeMs / 1000} s`), timeMs);
  const watch = setInterval(() => {
    if (child.pid !== undefined && memoryOf([child.pid], memoryBytes) > memoryBytes) {
      end(`it needs more than ${mebibytes(memoryBytes)} of memory`);
    }
  }, watchMs);
  const pieces: Buffer[] = [];
  let bytes = 0;
  child.stdout.on("data", (piece: Buffer) => {
    bytes += piece.length;
    if (bytes > outputBytes) end(`what was read from it is larger than ${mebibytes(outputBytes)}`);
    else pieces.push(piece);
  });
  let errors = "";
  child.stderr.on("data", (piece: Buffer) => {
    if (errors.length < maxErrorLength) errors += piece.toString("utf8").slice(0, maxErrorLength - errors.length);
  });
  // Ignore write errors: a program that ends early closes its stdin, and its exit code reports the failure.
  child.stdin.on("error", () => undefined);
  child.stdin.end(input);
  const exit = await new Promise<Exit>((resolve) => {
    void failed.then((reason) => {
      verdict ??= reason;
      resolve({ code: null, signal: null });
    });
    child.once("close", (code, signal) => resolve({ code, signal }));
  });
  clearTimeout(timer);
  clearInterval(watch);
  signal?.removeEventListener("abort", cancel);
  const failure = exit.code === 0 && verdict === null ? null : (verdict ?? reasonOf(exit, errors, cpuSeconds));
  return { output: Buffer.concat(pieces), failure };
}

interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/**
 * Returns why a program failed that this server did not kill. After a crash, its stderr output is not returned, because the
 * output describes the program and not the input.
 */
function reasonOf({ signal }: Exit, errors: string, cpuSeconds: number): string {
  if (/heap out of memory|heap limit/i.test(errors)) return "it needs more memory than its decoder may use";
  // The kernel ends a program that exceeds its processor time with SIGXCPU or SIGKILL.
  if (signal === "SIGXCPU") return `it takes more than ${cpuSeconds} s of processor time`;
  if (signal === "SIGKILL") {
    return `the system ended it: it takes more than ${cpuSeconds} s of processor time, or this machine has no memory left`;
  }
  if (signal !== null) return `the program that reads it ended with ${signal}`;
  return errors || "the program that reads it ended early";
}

function mebibytes(bytes: number): string {
  return `${Math.ceil(bytes / 2 ** 20)} MiB`;
}
