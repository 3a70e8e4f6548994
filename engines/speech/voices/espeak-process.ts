// espeak-ng: runs the system's program as a child process, for phonemes and for its own voices. It is licensed under the GPL, so it
// is never linked. Each run gets one text on its standard input, and is ended with its time or its output.
import { spawn } from "node:child_process";
import { ServerError } from "../../../runtime/errors.ts";

const program = "espeak-ng";
/** Maximum time of a run in ms. A sentence takes some 20 ms. */
const limitMs = 20_000;
/** Maximum output in bytes: 10 minutes of its own voices, which is far more than a sentence. */
const maxOutputBytes = 32 * 2 ** 20;

/** The package that has the program on Debian and Ubuntu is named like the program. */
export const espeakAdvice = "install espeak-ng, for example with: apt-get install espeak-ng";

/** Runs espeak-ng with a text on its standard input. Returns its output. Throws `unsupported` if it is not installed. */
export async function runEspeak(args: readonly string[], text: string, signal: AbortSignal): Promise<Buffer> {
  if (signal.aborted) throw new ServerError("cancelled", "the request was cancelled");
  const child = spawn(program, [...args], {
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
  // An ended program closes its input. Its exit status tells why.
  child.stdin.on("error", () => {});
  child.stdin.end(text);
  try {
    await new Promise<void>((resolve, reject) => {
      child.on("error", (error: NodeJS.ErrnoException) => reject(startError(error)));
      child.on("close", (code, killedBy) => {
        if (code === 0) resolve();
        else reject(new ServerError("model_failed", `espeak-ng ended with ${killedBy ?? `status ${code}`}`));
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

/** Checks that the program runs. Returns its version. Throws `unsupported`. */
export async function espeakVersion(): Promise<string> {
  const output = await runEspeak(["--version"], "", new AbortController().signal);
  return /(\d+\.\d+[\d.]*)/.exec(output.toString())?.[1] ?? "unknown";
}

function startError(error: NodeJS.ErrnoException): ServerError {
  if (error.code !== "ENOENT") return new ServerError("model_failed", `espeak-ng did not start: ${error.message}`);
  return new ServerError("unsupported", `expected the program espeak-ng on this machine, found none: ${espeakAdvice}`);
}
