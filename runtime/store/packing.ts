// Owns how a value is written: its time of birth, then the value in MessagePack. Shared by the stores, so that one measures
// and ages values as the other does.
import { pack, unpack } from "msgpackr";
import { ServerError } from "../errors.ts";
import type { StoreLimits } from "./store.ts";

/** A float64, big-endian: milliseconds since 1970. */
const birthBytes = 8;

export function packed(value: unknown, bornMs: number, { maxEntryBytes, maxBytes }: StoreLimits): Buffer {
  const body = pack(value);
  const limit = Math.min(maxEntryBytes, maxBytes);
  if (body.length > limit) {
    throw new ServerError("invalid_value", `expected at most ${limit} bytes to keep, got ${body.length}`);
  }
  const birth = Buffer.alloc(birthBytes);
  birth.writeDoubleBE(bornMs);
  return Buffer.concat([birth, body]);
}

export function unpacked<Value>(bytes: Buffer): Value {
  return unpack(bytes.subarray(birthBytes)) as Value;
}

export function bornAt(bytes: Buffer): number {
  return bytes.readDoubleBE(0);
}
