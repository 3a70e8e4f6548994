// Outer layers of an audio encoder: its parts before and after its layers. Plain data, part of the graph. The embedding of such a graph is
// the first convolution; audio-graph.ts builds the graph, audio-pass.ts computes it.
import type { TensorInfo } from "../../files/gguf/tensors.ts";
import type { Matrix } from "../graph/graph-tensors.ts";

/** Number of frames that a convolution multiplies: those before, at and after its place. */
export const kernelFrames = 3;

/**
 * Step of the projector: an RMS norm of the rows, a matrix with its bias, `gelu`, or `gated`: the first half of a row times the silu
 * of its second half.
 */
export type AudioStep =
  | { readonly kind: "norm"; readonly weight: TensorInfo }
  | { readonly kind: "matrix"; readonly matrix: Matrix }
  | { readonly kind: "gelu" }
  | { readonly kind: "gated" };

export interface AudioOuterLayers {
  /** Second convolution, from three frames to a position. Its columns are [width][3]. */
  readonly convolution: Matrix;
  /** true: each pair of positions becomes its average, before the output norm. */
  readonly averagesPairs: boolean;
  /** Number of positions that become one row, side by side, after the output norm. */
  readonly stack: number;
  readonly projector: readonly AudioStep[];
  /** Number of floats of an embedding. */
  readonly length: number;
}
