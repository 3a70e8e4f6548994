// Bare text: reads values that are written as text up to an end mark, of any length. Syntaxes call it. Text that was given is
// not kept.
import type { Reading, Wait } from "./reading.ts";

/**
 * Reads through the end mark and gives the text before it, piece by piece. Returns false if the output ends first. If the text
 * begins with the padding, that padding and one before the mark are removed.
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

/** Reads like `readText` and gives the text as a JSON string of the arguments. */
export function* giveString(reading: Reading, end: string, padding: string): Wait<boolean> {
  reading.giveArguments('"');
  const isWhole = yield* readText(reading, end, padding, (piece) => reading.giveArguments(escapeJson(piece)));
  if (isWhole) reading.giveArguments('"');
  return isWhole;
}

/** Start of the longest suffix of `text` that is a prefix of `mark`. */
function beginningAt(text: string, mark: string, from: number): number {
  for (let at = Math.max(from, text.length - mark.length + 1); at < text.length; at++) {
    if (mark.startsWith(text.slice(at))) return at;
  }
  return text.length;
}

/** Half a surrogate pair stays as it is, so that the two pieces of a pair join. */
function escapeJson(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: JSON does not allow these characters in a string.
  return text.replace(/["\\\u0000-\u001f]/g, (character) => JSON.stringify(character).slice(1, -1));
}
