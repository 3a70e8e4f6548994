// Lines that a server process prints to its stderr, for the log: a bounded number of lines a second, of bounded length.
import type { Clock } from "../../../runtime/clock.ts";

/** Maximum number of characters of a line. The log shows fewer: secrets are removed from the line before it is cut to them. */
const MAX_LINE_LENGTH = 8192;
const MAX_LINES_PER_SECOND = 50;

/** Returns a reader of the output. The end of a long line is left out and marked. Lines above the rate are left out and counted. */
export function stderrLines(clock: Clock, onLine: (line: string) => void): (chunk: Buffer) => void {
  // A chunk may end within a character.
  const decoder = new TextDecoder();
  let line = "";
  /** Whether the beginning of the line was printed, and its rest is left out. */
  let isCut = false;
  let second = 0;
  let count = 0;
  const print = (text: string): void => {
    const now = Math.floor(clock.now() / 1000);
    if (now !== second) {
      if (count > MAX_LINES_PER_SECOND) onLine(`(${count - MAX_LINES_PER_SECOND} more lines were left out)`);
      second = now;
      count = 0;
    }
    if (++count <= MAX_LINES_PER_SECOND) onLine(text);
  };
  const add = (text: string): void => {
    if (isCut) return;
    line += text;
    if (line.length <= MAX_LINE_LENGTH) return;
    print(`${line.slice(0, MAX_LINE_LENGTH)}…`);
    isCut = true;
  };
  const end = (): void => {
    if (!isCut && line.trim() !== "") print(line);
    line = "";
    isCut = false;
  };
  return (chunk) => {
    for (const [i, text] of decoder.decode(chunk, { stream: true }).split("\n").entries()) {
      if (i > 0) end();
      add(text);
    }
  };
}
