// Pairs of a tokenizer: GGUF key/value pairs by key.
import type { TypedValue } from "../../gguf/typed-value.ts";

export type Pairs = Map<string, TypedValue>;

/** Prefix of the keys of a tokenizer, except those of chat templates. */
export const keyPrefix = "tokenizer.ggml.";

export function setText(pairs: Pairs, name: string, value: string): void {
  pairs.set(keyPrefix + name, { type: "string", value });
}

export function setFlag(pairs: Pairs, name: string, value: boolean): void {
  pairs.set(keyPrefix + name, { type: "bool", value });
}

export function setToken(pairs: Pairs, name: string, value: number): void {
  pairs.set(keyPrefix + name, { type: "u32", value });
}
