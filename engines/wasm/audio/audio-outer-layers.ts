// Outer layers of an audio encoder: the parts before and after its transformer layers. Plain data, part of the graph. The graph's embedding
// matrix is the first convolution. audio-graph.ts builds this data, audio-pass.ts computes these layers.
import type { TensorInfo } from "../../files/gguf/tensors.ts";
import type { Matrix } from "../graph/graph-tensors.ts";

/** Kernel size of both convolutions in frames: the previous frame, the frame itself and the next frame. */
export const kernelFrames = 3;

/**
 * Step of the projector. "norm": RMS norm of each row. "matrix": product with a matrix, plus its bias. "gelu": activation. "gated": the
 * first half of each row is multiplied by the silu of its second half.
 */
export type AudioStep =
  | { readonly kind: "norm"; readonly weight: TensorInfo }
  | { readonly kind: "matrix"; readonly matrix: Matrix }
  | { readonly kind: "gelu" }
  | { readonly kind: "gated" };

export interface AudioOuterLayers {
  /** Matrix of the second convolution, which computes a position from three frames. A row of the matrix has the shape [width][3]. */
  readonly convolution: Matrix;
  /** true: each pair of adjacent positions is replaced by its average, before the output norm. */
  readonly averagesPairs: boolean;
  /** Number of adjacent positions that are concatenated into one row, after the output norm. */
  readonly stack: number;
  readonly projector: readonly AudioStep[];
  /** Number of floats in an embedding. */
  readonly length: number;
}
