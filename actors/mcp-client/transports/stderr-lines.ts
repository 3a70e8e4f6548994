// Lines that a server process prints to its stderr, for the log: a bounded number of lines a second, of bounded length.
import type { Clock } from "../../../runtime/clock.ts";

const MAX_LINE_BYTES = 2000;
const MAX_LINES_PER_SECOND = 50;

/** Returns a reader of the output. Long lines are cut or divided. Lines above the rate are left out and counted. */
export function stderrLines(clock: Clock, onLine: (line: string) => void): (chunk: Buffer) => void {
  let rest = "";
  let second = 0;
  let count = 0;
  const print = (line: string): void => {
    const now = Math.floor(clock.now() / 1000);
    if (now !== second) {
      if (count > MAX_LINES_PER_SECOND) onLine(`(${count - MAX_LINES_PER_SECOND} more lines were left out)`);
      second = now;
      count = 0;
    }
    if (++count <= MAX_LINES_PER_SECOND) onLine(line);
  };
  return (chunk) => {
    const lines = (rest + chunk.toString("utf8")).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line.trim() !== "") print(line.slice(0, MAX_LINE_BYTES));
    if (rest.length <= MAX_LINE_BYTES) return;
    print(rest.slice(0, MAX_LINE_BYTES));
    rest = "";
  };
}
