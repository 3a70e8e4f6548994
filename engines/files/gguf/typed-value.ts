// Typed value: a value of a GGUF key/value pair with its GGUF type, as writer.ts encodes it. Plain data.

/** Numbers that stand for the number types in a GGUF file. */
export const numberTypes = {
  u8: 0,
  i8: 1,
  u16: 2,
  i16: 3,
  u32: 4,
  i32: 5,
  f32: 6,
  u64: 10,
  i64: 11,
  f64: 12,
} as const;

export type NumberType = keyof typeof numberTypes;

export type TypedValue = PlainValue & {
  /**
   * Bytes of the value in the file from which it was read. They are written instead of the value, because strings may not be valid UTF-8,
   * and 64-bit integers may exceed 2^53.
   */
  readonly exact?: Uint8Array;
};

type PlainValue =
  | { readonly type: NumberType; readonly value: number }
  | { readonly type: "bool"; readonly value: boolean }
  | { readonly type: "string"; readonly value: string }
  | { readonly type: "array"; readonly of: NumberType; readonly value: readonly number[] }
  | { readonly type: "array"; readonly of: "bool"; readonly value: readonly boolean[] }
  | { readonly type: "array"; readonly of: "string"; readonly value: readonly string[] };
