// Messages between a conversion and its worker threads.
import type { ErrorRecord } from "../../../runtime/errors.ts";
import type { SourceTensor } from "./model-source.ts";

/** Start parameters of a worker. */
export interface ConversionTask {
  /** Paths of the source's files. */
  readonly files: readonly string[];
  readonly target: string;
  readonly tensors: readonly TargetTensor[];
}

export interface TargetTensor extends SourceTensor {
  /** GGUF type of the tensor in the target file. */
  readonly targetType: number;
  /** Byte position of the tensor in the target file. */
  readonly offset: number;
  /**
   * Importance of the columns for each matrix of the tensor, one matrix after another, in shared memory; null = all columns have the same
   * weight. A tensor of experts has one matrix per expert.
   */
  readonly importance: Float32Array | null;
}

/** Chunk: consecutive rows of a tensor that a worker converts at once. */
export interface Chunk {
  /** Index of the chunk in the conversion's list of chunks. */
  readonly index: number;
  /** Index of the tensor in ConversionTask.tensors. */
  readonly tensor: number;
  readonly firstRow: number;
  readonly rows: number;
}

/** `done`: index of the chunk that was written. */
export type WorkerReport = { readonly done: number } | { readonly error: ErrorRecord };
