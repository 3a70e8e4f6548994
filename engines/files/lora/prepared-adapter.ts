// Prepared adapter: a LoRA adapter in the format that engines load. Plain data, created by prepare.ts.
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
  /** sha256 of the file as 64 hex digits; identifies the adapter's revision. */
  readonly generation: string;
  /** Path of the file. The file never changes; the caller of the preparation must remove it. */
  readonly path: string;
  /** Highest rank among the adapter's matrices. */
  readonly rank: number;
  /** Size of the adapter's tensors in bytes. */
  readonly bytes: number;
}
