// Stored bytes of a response, read in slices while they are sent.
import type { Span, StoredResponses } from "../../../actors/api/stored-responses.ts";
import { joinBytes } from "../../../runtime/bytes.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { Gate } from "../../../runtime/queues/gate.ts";
import { DONE } from "../fold/event-text.ts";

/** Empty line that ends an event. The data of an event cannot contain it. */
const EVENT_END = Buffer.from("\n\n");
/** Limits concurrent reads, because many slices that arrive together would block the event loop for too long. */
const gate = new Gate(4);

export function lengthOf(spans: readonly Span[]): number {
  return spans.reduce((sum, { from, to }) => sum + to - from, 0);
}

/**
 * Reads a slice of the stored bytes in `spans` (byte ranges), starting at byte `at` of all spans together; null if the bytes
 * are no longer stored.
 */
export function keptSlice(store: StoredResponses, spans: readonly Span[], at: number): Promise<Uint8Array | null> {
  return gate.pass(() => store.slice({ spans, at }));
}

/**
 * Yields the stored bytes in `spans` (byte ranges) in slices, from byte `from` on. Throws not_found if they are no longer
 * stored.
 */
export async function* keptBytes(store: StoredResponses, spans: readonly Span[], from = 0): AsyncGenerator<Uint8Array> {
  const length = lengthOf(spans);
  for (let at = from; at < length; ) {
    const slice = await keptSlice(store, spans, at);
    if (slice === null) throw gone();
    yield slice;
    at += slice.byteLength;
  }
}

/** Returns all stored bytes in `spans` (byte ranges). Throws not_found if they are no longer stored. */
export async function allKeptBytes(store: StoredResponses, spans: readonly Span[]): Promise<Uint8Array> {
  const slices: Uint8Array[] = [];
  for await (const slice of keptBytes(store, spans)) slices.push(slice);
  return joinBytes(slices);
}

/** Yields the stored events after the first `count` events, followed by the text that ends the stream. */
export async function* eventsAfter(
  slices: AsyncIterable<Uint8Array>,
  count: number,
): AsyncGenerator<Uint8Array | string> {
  let skipped = 0;
  /** Last byte of the previous slice. It is kept because the two newline characters that end an event may be in two slices. */
  let held: Uint8Array = new Uint8Array(0);
  for await (const slice of slices) {
    const bytes = skipped < count ? joinBytes([held, slice]) : slice;
    let at = 0;
    while (skipped < count) {
      const end = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).indexOf(EVENT_END, at);
      if (end < 0) break;
      at = end + EVENT_END.byteLength;
      skipped++;
    }
    if (skipped === count) yield bytes.subarray(at);
    else held = bytes.subarray(Math.max(at, bytes.byteLength - 1));
  }
  yield DONE;
}

function gone(): ServerError {
  return new ServerError("not_found", "the response was deleted or changed while it was read");
}
