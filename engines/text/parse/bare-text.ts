// Owns values that are written as bare text up to an end mark, as long as they like. Syntaxes call it; nothing is kept of what
// went out.
import type { Reading, Wait } from "./reading.ts";

/**
 * Reads up to and with the end mark and gives what is before it, piece by piece; false where the answer is over first.
 * A text that begins with the padding is without it there, and before the mark.
 */
export function* readText(
  reading: Reading,
  end: string,
  padding: string,
  give: (piece: string) => void,
): Wait<boolean> {
  const isPadded = padding !== "" && (yield* reading.literal(padding));
  for (;;) {
    const { text, position } = reading;
    const found = text.indexOf(end, position);
    let stop = found < 0 ? beginningAt(text, end, position) : found;
    if (isPadded && text.endsWith(padding, stop) && stop - padding.length >= position) stop -= padding.length;
    if (stop > position) give(text.slice(position, stop));
    reading.position = found < 0 ? stop : found + end.length;
    if (found >= 0) return true;
    if (reading.isOver) return false;
    yield;
  }
}

/** Reads the same as a JSON string of the arguments. */
export function* giveString(reading: Reading, end: string, padding: string): Wait<boolean> {
  reading.giveArguments('"');
  const isWhole = yield* readText(reading, end, padding, (piece) => reading.giveArguments(escapeJson(piece)));
  if (isWhole) reading.giveArguments('"');
  return isWhole;
}

/** Where the longest end of `text` begins that is a beginning of `mark`. */
function beginningAt(text: string, mark: string, from: number): number {
  for (let at = Math.max(from, text.length - mark.length + 1); at < text.length; at++) {
    if (mark.startsWith(text.slice(at))) return at;
  }
  return text.length;
}

/** Half a surrogate pair stays what it is, so that the pieces of a pair make one. */
function escapeJson(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: those are what JSON does not allow.
  return text.replace(/["\\\u0000-\u001f]/g, (character) => JSON.stringify(character).slice(1, -1));
}
