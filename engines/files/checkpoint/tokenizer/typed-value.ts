// Typed value: the value of a GGUF key with its type. Also the pairs of a tokenizer, by key.

export type TypedValue =
  | { readonly type: "u32" | "i32" | "f32"; readonly value: number }
  | { readonly type: "bool"; readonly value: boolean }
  | { readonly type: "string"; readonly value: string }
  | { readonly type: "strings"; readonly value: readonly string[] }
  | { readonly type: "i32s"; readonly value: readonly number[] }
  | { readonly type: "f32s"; readonly value: readonly number[] }
  | { readonly type: "u8s"; readonly value: Uint8Array };

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
