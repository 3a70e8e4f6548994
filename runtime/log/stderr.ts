// stderr of this process, for the log and for what threads and child processes print. A pipe or a socket, whose reader may be
// slow or gone, is written without blocking this thread; a terminal or a file is written synchronously.
import { fstatSync } from "node:fs";
import pino from "pino";
import { PipeLines } from "./pipe-lines.ts";

const stderr = 2;
/** How long the end of the process waits for room for the last lines. */
const exitFlushMs = 500;

let output: { write(lines: string): unknown } | null = null;
let sayLost = (count: number): void => writeStderr(`${count} lines were lost: nobody read stderr\n`);

/** Writes whole lines. */
export function writeStderr(lines: string): void {
  output ??= open();
  output.write(lines);
}

/** Sets what reports how many lines were lost, once there is room for more. */
export function onLostLines(say: (count: number) => void): void {
  sayLost = say;
}

function open(): { write(lines: string): unknown } {
  const kind = fstatSync(stderr);
  // Opening node's own stream makes the descriptor non-blocking. A child process that inherits it makes it blocking again.
  const isPipe = (kind.isFIFO() || kind.isSocket()) && process.stderr.writable;
  if (!isPipe) return pino.destination({ dest: stderr, sync: true });
  const lines = new PipeLines({ fd: stderr, onLost: (count) => sayLost(count) });
  process.on("exit", () => lines.flush(exitFlushMs));
  return lines;
}
