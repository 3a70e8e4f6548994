// stderr of this process, for the log and for the output of threads and child processes. Writes to a pipe or socket do not
// block this thread, because the reader may be slow or gone. Writes to a terminal or file are synchronous.
import { fstatSync } from "node:fs";
import pino from "pino";
import { PipeLines } from "./pipe-lines.ts";

const stderr = 2;
/** Maximum time in ms that the exit of the process waits for the last lines to be written. */
const exitFlushMs = 500;

let output: { write(lines: string): unknown } | null = null;
let sayLost = (count: number): void => writeStderr(`${count} lines were lost: stderr was not read\n`);

/** Writes complete lines to stderr. */
export function writeStderr(lines: string): void {
  output ??= open();
  output.write(lines);
}

/** Sets the function that reports lost lines. It is called with their number once stderr accepts output again. */
export function onLostLines(say: (count: number) => void): void {
  sayLost = say;
}

function open(): { write(lines: string): unknown } {
  const kind = fstatSync(stderr);
  // Opening Node's own stream makes the descriptor non-blocking. A child process that inherits the
  // descriptor makes it blocking again.
  const isPipe = (kind.isFIFO() || kind.isSocket()) && process.stderr.writable;
  if (!isPipe) return pino.destination({ dest: stderr, sync: true });
  const lines = new PipeLines({ fd: stderr, onLost: (count) => sayLost(count) });
  process.on("exit", () => lines.flush(exitFlushMs));
  return lines;
}
