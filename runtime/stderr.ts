// stderr of this process, for the log and for what threads and child processes print. Where it is a pipe or a socket that
// nobody may read, lines leave without ever holding this thread; a terminal or a file is written at once.
import { fstatSync } from "node:fs";
import pino from "pino";
import { PipeLines } from "./pipe-lines.ts";

const stderr = 2;
/** How long the end of the process waits for room for the last lines. */
const exitFlushMs = 500;

let output: { write(lines: string): unknown } | null = null;
let sayLost = (count: number): void => writeStderr(`${count} lines are lost: nobody read stderr\n`);

/** Writes whole lines. */
export function writeStderr(lines: string): void {
  output ??= open();
  output.write(lines);
}

/** Has `say` tell how many lines were lost, once there is room for more. */
export function onLostLines(say: (count: number) => void): void {
  sayLost = say;
}

function open(): { write(lines: string): unknown } {
  const kind = fstatSync(stderr);
  // Opening node's own stream makes the descriptor one that does not block. Whoever inherited it would make it one that does.
  const isPipe = (kind.isFIFO() || kind.isSocket()) && process.stderr.writable;
  if (!isPipe) return pino.destination({ dest: stderr, sync: true });
  const lines = new PipeLines({ fd: stderr, onLost: (count) => sayLost(count) });
  process.on("exit", () => lines.flush(exitFlushMs));
  return lines;
}
