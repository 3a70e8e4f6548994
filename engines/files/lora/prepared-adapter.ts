// Owns what is known of a LoRA adapter that has been made ready for the engines. Plain data, made by prepare.ts.
//
// A prepared adapter is a GGUF file as llama.cpp takes it: general.type "adapter", adapter.type "lora", and for each matrix
// of the model that it changes, named as in the model's own file, two tensors of F16:
//
//   <name>.lora_a   [rank][columns of the matrix]
//   <name>.lora_b   [rows of the matrix][rank]
//
// The matrix counts as W + B A: every scale (alpha / r, rank stabilisation) is in the tensors already, and the rows of
// queries and keys are in the order of the model's file. Values are balanced between A and B so that F16 loses nothing that
// matters. The same content gives the same bytes.

export interface PreparedAdapter {
  /** sha256 of the file: 64 hex digits. */
  readonly generation: string;
  /** Nobody changes this file; whoever prepared it removes it. */
  readonly path: string;
  /** Highest rank of its matrices. */
  readonly rank: number;
  /** Of its tensors. */
  readonly bytes: number;
}
