// JSON text of large values, made piece by piece: what JSON.stringify would give, never as one string.

import { setImmediate as nextTurn } from "node:timers/promises";
import { joinBytes } from "../../../runtime/bytes.ts";
import { ServerError } from "../../../runtime/errors.ts";

/** Fewest characters of a piece but the last. A piece has at most twice as many, unless one fragment is longer. */
export const PIECE_LENGTH = 2 ** 16;

/** JSON text that is made when it is written. */
class LaterJson {
  readonly fragments: () => Iterable<string>;

  constructor(fragments: () => Iterable<string>) {
    this.fragments = fragments;
  }

  toJSON(): never {
    throw new Error("a value with parts that are made later is written by jsonPieces, not by JSON.stringify");
  }
}

/** Stands for a value in another that jsonPieces writes. May be written more than once. */
export function writtenLater<Value>(fragments: () => Iterable<string>): Value {
  return new LaterJson(fragments) as Value;
}

/** The JSON text of a plain value. What the value holds must not change until all of it is written. */
export function jsonPieces(value: unknown): Iterable<string> {
  return gathered(fragmentsOf(value));
}

/** Fragments of a text, put together to pieces of PIECE_LENGTH. */
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

/** A text as UTF-8, made with other work of the thread between its pieces. Throws invalid_value where it has more bytes. */
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
  return joinBytes(parts);
}

/** A JSON array of entries that are JSON texts. */
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

/** A JSON string of texts, which end with whole characters, in a row. */
export function* textFragments(texts: readonly string[]): Generator<string> {
  yield '"';
  for (const text of texts) for (const piece of textPieces(text)) yield JSON.stringify(piece).slice(1, -1);
  yield '"';
}

/** A text in pieces that end with whole characters. */
export function* textPieces(text: string): Generator<string> {
  for (let at = 0; at < text.length; ) {
    const end = cutAt(text, at + PIECE_LENGTH);
    yield text.slice(at, end);
    at = end;
  }
}

/** UTF-8 as text in pieces that end with whole characters. */
export function* decodedPieces(utf8: Uint8Array): Generator<string> {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  for (let at = 0; at < utf8.length; at += PIECE_LENGTH) {
    yield decoder.decode(utf8.subarray(at, at + PIECE_LENGTH), { stream: true });
  }
}

/** `at`, or one before it where it lies inside a pair of surrogates: each half alone would be written as an escape. */
export function cutAt(text: string, at: number): number {
  const last = text.charCodeAt(at - 1);
  return at < text.length && last >= 0xd800 && last < 0xdc00 ? at - 1 : at;
}
