// Spans: stored byte ranges that together form a response to a client. They are read in slices of bounded size.
import { joinBytes } from "../../runtime/bytes.ts";
import type { Span } from "../api/stored-responses.ts";

/** Maximum number of bytes of one slice. */
export const SLICE_BYTES = 256 * 1024;

/** Returns one slice of the spans' bytes, starting at byte `at`. Empty after the end; null if a part no longer exists. */
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
  return joinBytes(pieces);
}
