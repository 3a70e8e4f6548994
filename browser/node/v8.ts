// The part of node:v8 that the engine uses.

/** Browsers have no flags. */
export function setFlagsFromString(): void {}

/** Serialises plain data. Unlike V8, only values of JSON. */
export function serialize(value: unknown): Uint8Array {
  return new TextEncoder().encode(JSON.stringify(value));
}

export function deserialize(bytes: Uint8Array): unknown {
  return JSON.parse(new TextDecoder().decode(bytes));
}
