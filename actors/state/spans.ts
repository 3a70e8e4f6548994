// Spans: stored byte ranges that together form the body of an HTTP response. They are read in slices of bounded size.
import { joinBytes } from "../../runtime/bytes.ts";
import type { Reading } from "../../runtime/store/store.ts";
import type { Span } from "../api/stored-responses.ts";

/** Maximum number of bytes of one slice. */
export const SLICE_BYTES = 256 * 1024;

/** Returns one slice of the spans' bytes, starting at byte `at`. Empty after the end; null = a stored part no longer exists. */
export async function sliceOf(
  spans: readonly Span[],
  at: number,
  read: (part: number, from: number, to: number) => Reading<Uint8Array | null>,
): Promise<Uint8Array | null> {
  const reads: Reading<Uint8Array | null>[] = [];
  let skipped = at;
  let room = SLICE_BYTES;
  for (const { part, from, to } of spans) {
    const start = Math.min(from + skipped, to);
    skipped -= start - from;
    const end = Math.min(to, start + room);
    if (start === end) continue;
    // All parts are read concurrently, because a read may be a network round trip.
    reads.push(read(part, start, end));
    room -= end - start;
    if (room === 0) break;
  }
  const pieces = await Promise.all(reads);
  return pieces.every((piece) => piece !== null) ? joinBytes(pieces) : null;
}
