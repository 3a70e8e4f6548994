// Owns how a value is written: its time of birth and its head, and apart from them the rest, both in MessagePack. Shared by
// the stores, so that one measures and ages values as the other does.
import { pack, unpack } from "msgpackr";
import { ServerError } from "../errors.ts";
import type { Entry, StoreLimits } from "./store.ts";

/** A float64, big-endian: milliseconds since 1970. */
const birthBytes = 8;

export interface PackedEntry {
  /** Begins with the time of birth. */
  readonly head: Buffer;
  readonly rest: Buffer;
  readonly byteLength: number;
}

export function packed(
  { head, rest }: Entry<unknown, unknown>,
  bornMs: number,
  { maxEntryBytes, maxBytes }: StoreLimits,
): PackedEntry {
  const [headBody, restBody] = [pack(head), pack(rest)];
  const length = headBody.length + restBody.length;
  const limit = Math.min(maxEntryBytes, maxBytes);
  if (length > limit) {
    throw new ServerError("invalid_value", `expected at most ${limit} bytes to keep, got ${length}`);
  }
  const birth = Buffer.alloc(birthBytes);
  birth.writeDoubleBE(bornMs);
  return { head: Buffer.concat([birth, headBody]), rest: restBody, byteLength: birthBytes + length };
}

export function unpackedHead<Head>(bytes: Buffer): Head {
  return unpack(bytes.subarray(birthBytes)) as Head;
}

export function unpackedRest<Rest>(bytes: Buffer): Rest {
  return unpack(bytes) as Rest;
}

export function bornAt(head: Buffer): number {
  return head.readDoubleBE(0);
}
