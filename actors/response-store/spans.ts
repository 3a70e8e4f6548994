// Spans: kept bytes that follow each other in an answer, given out in slices of a bounded size.
import type { Span } from "../stored-responses.ts";

/** Most bytes of one slice. */
export const SLICE_BYTES = 256 * 1024;

/** One slice of the spans' bytes, from byte `at` on; empty behind their end, null where a part is gone. */
export function sliceOf(
  spans: readonly Span[],
  at: number,
  read: (part: number, from: number, to: number) => Uint8Array | null,
): Uint8Array | null {
  const pieces: Uint8Array[] = [];
  let skipped = at;
  let room = SLICE_BYTES;
  for (const { part, from, to } of spans) {
    const start = Math.min(from + skipped, to);
    skipped -= start - from;
    const end = Math.min(to, start + room);
    if (start === end) continue;
    const bytes = read(part, start, end);
    if (bytes === null) return null;
    pieces.push(bytes);
    room -= bytes.byteLength;
    if (room === 0) break;
  }
  return joined(pieces);
}

/** All bytes in one buffer. Where only one piece has any, it is that piece: a large one is not copied. */
export function joined(pieces: readonly Uint8Array[]): Uint8Array {
  const [only, ...more] = pieces.filter(({ byteLength }) => byteLength > 0);
  if (only !== undefined && more.length === 0) return only;
  const all = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.byteLength, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.byteLength;
  }
  return all;
}
