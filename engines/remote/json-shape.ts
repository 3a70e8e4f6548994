// JSON checks: functions that check the type of a value in an upstream's JSON before it is used.
import { UpstreamFailure } from "./upstream.ts";

export type JsonRecord = Readonly<Record<string, unknown>>;

export function record(value: unknown, what: string): JsonRecord {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as JsonRecord;
  throw garbage(`an object as ${what}`, value);
}

export function list(value: unknown, what: string): readonly unknown[] {
  if (Array.isArray(value)) return value;
  throw garbage(`a list as ${what}`, value);
}

/** Returns the value as a token id. Throws UpstreamFailure if it is not a whole number of at least 0. */
export function tokenId(value: unknown): number {
  if (typeof value === "number" && Number.isInteger(value) && value >= 0) return value;
  throw garbage("a token id", value);
}

export function finite(value: unknown, what: string): number {
  if (typeof value === "number") return value;
  // The logarithm of probability 0 is minus infinity, which JSON cannot represent. Upstreams send null instead.
  if (value === null) return Number.NEGATIVE_INFINITY;
  throw garbage(`a number as ${what}`, value);
}

/** Returns the value if it is a whole number above 0, else null. */
export function count(value: unknown): number | null {
  return typeof value === "number" && Number.isInteger(value) && value > 0 ? value : null;
}

const shownLength = 120;

export function garbage(expected: string, got: unknown): UpstreamFailure {
  const shown = (JSON.stringify(got) ?? "nothing").slice(0, shownLength);
  return new UpstreamFailure("garbage", `expected ${expected}; got ${shown}`);
}

/** Returns the message in an upstream's error response, cut to 300 characters. */
export function errorText(body: unknown): string {
  const limit = 300;
  if (typeof body === "string") return body.trim().slice(0, limit);
  const { error, message, detail } = (typeof body === "object" && body !== null ? body : {}) as JsonRecord;
  const inner = error ?? message ?? detail;
  if (typeof inner === "object" && inner !== null) return errorText(inner);
  return typeof inner === "string" ? inner.slice(0, limit) : JSON.stringify(body ?? "").slice(0, limit);
}
