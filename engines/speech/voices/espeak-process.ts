// espeak-ng: runs the system's program, for phonemes and for its own voices. It is licensed under the GPL, so it is never linked.
import { type Program, runProgram } from "./program.ts";

const program: Program = { name: "espeak-ng", advice: "install it, for example with: apt-get install espeak-ng" };

/** Runs espeak-ng with a text on its standard input. Returns its output. Throws `unsupported` if it is not installed. */
export function runEspeak(args: readonly string[], text: string, signal: AbortSignal): Promise<Buffer> {
  return runProgram(program, args, text, signal);
}

/** Checks that the program runs. Returns its version. Throws `unsupported`. */
export async function espeakVersion(): Promise<string> {
  const output = await runEspeak(["--version"], "", new AbortController().signal);
  return /(\d+\.\d+[\d.]*)/.exec(output.toString())?.[1] ?? "unknown";
}
