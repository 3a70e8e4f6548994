// System programs that the voices use. Each run is a child process that gets a text on its standard input, and is killed if it exceeds its
// limit of time or output. Programs under the GPL are used in this way, never linked.
import { spawn } from "node:child_process";
import { ServerError } from "../../../runtime/errors.ts";

export interface Program {
  readonly name: string;
  /** Describes how to install the program. */
  readonly advice: string;
}

/** Maximum time of a run in ms. A sentence takes about 20 ms. */
const limitMs = 20_000;
/** Maximum output in bytes: 10 minutes of audio of espeak-ng, which is far more than a sentence. */
const maxOutputBytes = 32 * 2 ** 20;

/** Runs a program with a text on its standard input. Returns its output. Throws `unsupported` if it is not installed. */
export async function runProgram(
  program: Program,
  args: readonly string[],
  text: string,
  signal: AbortSignal,
): Promise<Buffer> {
  const { name } = program;
  if (signal.aborted) throw new ServerError("cancelled", "the request was cancelled");
  const child = spawn(name, [...args], {
    stdio: ["pipe", "pipe", "ignore"],
    timeout: limitMs,
    killSignal: "SIGKILL",
  });
  const cancel = (): void => void child.kill("SIGKILL");
  signal.addEventListener("abort", cancel, { once: true });
  const pieces: Buffer[] = [];
  let bytes = 0;
  child.stdout.on("data", (piece: Buffer) => {
    bytes += piece.length;
    if (bytes > maxOutputBytes) child.kill("SIGKILL");
    else pieces.push(piece);
  });
  // A program that has ended closes its input, which causes this error. Its exit status tells why it ended.
  child.stdin.on("error", () => {});
  child.stdin.end(text);
  try {
    await new Promise<void>((resolve, reject) => {
      child.on("error", (error: NodeJS.ErrnoException) => reject(startError(program, error)));
      child.on("close", (code, killedBy) => {
        if (code === 0) resolve();
        else reject(new ServerError("model_failed", `${name} ended with ${killedBy ?? `status ${code}`}`));
      });
    });
  } catch (error) {
    if (signal.aborted) throw new ServerError("cancelled", "the request was cancelled");
    throw error;
  } finally {
    signal.removeEventListener("abort", cancel);
  }
  return Buffer.concat(pieces);
}

function startError({ name, advice }: Program, error: NodeJS.ErrnoException): ServerError {
  if (error.code !== "ENOENT") return new ServerError("model_failed", `${name} did not start: ${error.message}`);
  return new ServerError("unsupported", `expected the program ${name} on this machine, found none: ${advice}`);
}
