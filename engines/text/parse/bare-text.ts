// Bare text: reads argument values that are written as plain text up to a closing tag. Values may have any length,
// because text is emitted as it arrives and is not kept afterwards. Called by the readers of the call formats.
import type { Reading, Wait } from "./reading.ts";

/**
 * Reads up to and including the closing tag `end`, and emits the text before the tag piece by piece. Returns false if
 * the output ends before the tag. If the text begins with `padding`, this padding is removed, and so is the padding
 * before the closing tag.
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

/** Reads like `readText`, but emits the text as a JSON string of the arguments. */
export function* giveString(reading: Reading, end: string, padding: string): Wait<boolean> {
  reading.giveArguments('"');
  const isWhole = yield* readText(reading, end, padding, (piece) => reading.giveArguments(escapeJson(piece)));
  if (isWhole) reading.giveArguments('"');
  return isWhole;
}

/** Returns the start index of the longest suffix of `text` that is a prefix of `mark`. */
function beginningAt(text: string, mark: string, from: number): number {
  for (let at = Math.max(from, text.length - mark.length + 1); at < text.length; at++) {
    if (mark.startsWith(text.slice(at))) return at;
  }
  return text.length;
}

/**
 * Escapes a piece of text for a JSON string. Half of a surrogate pair stays unchanged, because the other half may be
 * in the next piece.
 */
function escapeJson(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: JSON does not allow these characters in a string.
  return text.replace(/["\\\u0000-\u001f]/g, (character) => JSON.stringify(character).slice(1, -1));
}
