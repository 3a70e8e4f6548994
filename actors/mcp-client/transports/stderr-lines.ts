// Stderr lines: reads the lines that a server process prints to stderr, for the log. Limits the lines per second and their length.
import type { Clock } from "../../../runtime/clock.ts";

/** Maximum number of characters of a line. The log shows fewer, because it truncates lines only after secrets are removed from them. */
const MAX_LINE_LENGTH = 8192;
const MAX_LINES_PER_SECOND = 50;

/** Returns a function that receives the output. Long lines are truncated and marked. Lines above the rate limit are dropped and counted. */
export function stderrLines(clock: Clock, onLine: (line: string) => void): (chunk: Buffer) => void {
  // A chunk may end in the middle of a character.
  const decoder = new TextDecoder();
  let line = "";
  /** Whether the beginning of the current line was printed, so that the rest is dropped. */
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
