// The part of node:v8 that the engine uses.

/** Does nothing, because browsers have no V8 flags. */
export function setFlagsFromString(): void {}

/** Serialises plain data as JSON. Unlike V8, it supports only JSON values. */
export function serialize(value: unknown): Uint8Array {
  return new TextEncoder().encode(JSON.stringify(value));
}

export function deserialize(bytes: Uint8Array): unknown {
  return JSON.parse(new TextDecoder().decode(bytes));
}
