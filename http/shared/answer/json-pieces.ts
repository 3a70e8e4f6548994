// JSON text of large values, in pieces: the same text as JSON.stringify returns, without building it as one string.
import { setImmediate as nextTurn } from "node:timers/promises";
import { joinBytes, ownBytes } from "../../../runtime/bytes.ts";
import { ServerError } from "../../../runtime/errors.ts";

/** Minimum characters of each piece except the last. The maximum is twice this number, unless one fragment is longer. */
export const PIECE_LENGTH = 2 ** 16;

/** JSON text that is generated only when it is written. */
class LaterJson {
  readonly fragments: () => Iterable<string>;

  constructor(fragments: () => Iterable<string>) {
    this.fragments = fragments;
  }

  toJSON(): never {
    throw new Error("a value with lazy parts needs jsonPieces instead of JSON.stringify");
  }
}

/** Creates a lazy value for use within a value that jsonPieces serialises. It can be serialised several times. */
export function writtenLater<Value>(fragments: () => Iterable<string>): Value {
  return new LaterJson(fragments) as Value;
}

/** Yields the JSON text of a plain value, which must not change until all pieces have been written. */
export function jsonPieces(value: unknown): Iterable<string> {
  return gathered(fragmentsOf(value));
}

/** Joins fragments of a text into pieces of at least PIECE_LENGTH characters. */
export function* gathered(fragments: Iterable<string>): Generator<string> {
  let piece = "";
  for (const fragment of fragments) {
    piece += fragment;
    if (piece.length < PIECE_LENGTH) continue;
    yield piece;
    piece = "";
  }
  if (piece !== "") yield piece;
}

/**
 * Encodes a text as UTF-8, in a buffer of its own, and yields to the event loop after every piece. Throws invalid_value above
 * `maxBytes`.
 */
export async function utf8Of(pieces: Iterable<string>, maxBytes: number): Promise<Uint8Array> {
  const parts: Buffer[] = [];
  let length = 0;
  for (const piece of pieces) {
    const part = Buffer.from(piece);
    length += part.length;
    if (length > maxBytes) throw new ServerError("invalid_value", `expected at most ${maxBytes} bytes, got more`);
    parts.push(part);
    await nextTurn();
  }
  return ownBytes(joinBytes(parts));
}

/** Yields a JSON array. `entries`: its entries as JSON texts. */
export function* arrayFragments(entries: Iterable<string>): Generator<string> {
  let before = "[";
  for (const entry of entries) {
    yield before + entry;
    before = ",";
  }
  yield before === "[" ? "[]" : "]";
}

function* fragmentsOf(value: unknown): Generator<string> {
  if (value instanceof LaterJson) yield* value.fragments();
  else if (typeof value === "string") yield* textFragments([value]);
  else if (Array.isArray(value)) yield* listFragments(value);
  else if (typeof value === "object" && value !== null) yield* objectFragments(value);
  else yield JSON.stringify(value) ?? "null";
}

function* objectFragments(value: object): Generator<string> {
  let before = "{";
  for (const [name, field] of Object.entries(value)) {
    if (field === undefined) continue;
    yield `${before}${JSON.stringify(name)}:`;
    yield* fragmentsOf(field);
    before = ",";
  }
  yield before === "{" ? "{}" : "}";
}

function* listFragments(list: readonly unknown[]): Generator<string> {
  let before = "[";
  for (const entry of list) {
    yield before;
    yield* fragmentsOf(entry);
    before = ",";
  }
  yield before === "[" ? "[]" : "]";
}

/** Yields one JSON string that contains several texts, in parts. Each text must end with a complete character. */
export function* textFragments(texts: readonly string[]): Generator<string> {
  yield '"';
  for (const text of texts) for (const piece of textPieces(text)) yield JSON.stringify(piece).slice(1, -1);
  yield '"';
}

/** Splits a text into pieces that end with complete characters. */
export function* textPieces(text: string): Generator<string> {
  for (let at = 0; at < text.length; ) {
    const end = cutAt(text, at + PIECE_LENGTH);
    yield text.slice(at, end);
    at = end;
  }
}

/** Decodes UTF-8 into pieces that end with complete characters. */
export function* decodedPieces(utf8: Uint8Array): Generator<string> {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  for (let at = 0; at < utf8.length; at += PIECE_LENGTH) {
    yield decoder.decode(utf8.subarray(at, at + PIECE_LENGTH), { stream: true });
  }
}

/** Returns `at`, or `at - 1` if a cut at `at` would split a surrogate pair, whose halves JSON would escape separately. */
export function cutAt(text: string, at: number): number {
  const last = text.charCodeAt(at - 1);
  return at < text.length && last >= 0xd800 && last < 0xdc00 ? at - 1 : at;
}
