// Prepared adapter: a LoRA adapter in the form that engines load. Plain data, made by prepare.ts.
//
// The file is a GGUF adapter in llama.cpp's format: general.type "adapter", adapter.type "lora", and two F16 tensors
// for each changed matrix, named as in the model's file:
//
//   <name>.lora_a   [rank][columns of the matrix]
//   <name>.lora_b   [rows of the matrix][rank]
//
// The matrix becomes W + B A: every scale (alpha / r, rank stabilisation) is already in the tensors, and the rows of
// queries and keys are in the order of the model's file. Values are balanced between A and B so that F16 loses no
// relevant precision. The same content gives the same bytes.

export interface PreparedAdapter {
  /** sha256 of the file: 64 hex digits. */
  readonly generation: string;
  /** The file does not change; the caller of the preparation removes it. */
  readonly path: string;
  /** Highest rank of its matrices. */
  readonly rank: number;
  /** Bytes of its tensors. */
  readonly bytes: number;
}
