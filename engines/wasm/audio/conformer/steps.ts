// Steps of a conformer's layers that other encoders do not have, and its outer layers: the parts before and after the layers. Plain data,
// part of the graph. conformer-graph.ts builds this data.
import type { TensorInfo } from "../../../files/gguf/tensors.ts";
import type { Matrix, Norm } from "../../graph/graph-tensors.ts";

/**
 * Attention of each position to itself and the positions shortly before it. The score of a key is the product of the query with the key,
 * plus the product of the query with a vector for the distance between the two positions.
 */
export interface LocalAttentionStep extends LocalAttentionRules {
  readonly kind: "localAttention";
  readonly query: Matrix;
  readonly key: Matrix;
  readonly value: Matrix;
  readonly output: Matrix;
  /** Matrix that makes the vector for a distance from the sines and cosines of that distance. */
  readonly distance: Matrix;
}

/** Parameters of the step, without its matrices. */
export interface LocalAttentionRules {
  /** Factors of the floats of each head's queries and keys; null = 1. */
  readonly queryScale: TensorInfo | null;
  readonly keyScale: TensorInfo | null;
  readonly postNorm: Norm | null;
}

/**
 * Convolution over the last positions, separately for each float: a product with `gated`, whose second half gates the first, the
 * convolution, a norm, silu, and a product with `output`.
 */
export interface ConvolutionStep extends ConvolutionRules {
  readonly kind: "convolution";
  readonly gated: Matrix;
  readonly output: Matrix;
}

/** Parameters of the step, without its matrices. */
export interface ConvolutionRules {
  /** Shape [width][kernelLength]. The last value belongs to the position itself. */
  readonly kernel: TensorInfo;
  readonly kernelLength: number;
  readonly norm: Norm | null;
}

/** Layers before and after those of a conformer. */
export interface ConformerOuterLayers {
  /** null: the input rows are the first hidden states. */
  readonly subsampling: Subsampling | null;
  /** Matrix after the last layer; null = none. */
  readonly output: Matrix | null;
  /** Weights of the RMS norm before the last matrix; null = 1. */
  readonly embedderNorm: TensorInfo | null;
  /** Matrix that makes the embeddings. */
  readonly embedder: Matrix;
  /** Number of floats in an embedding. */
  readonly length: number;
}

/**
 * Two convolutions over frames and bands of the spectrogram, each with steps of two, which turn four frames into one position. The graph's
 * embedding matrix is the first convolution.
 */
export interface Subsampling {
  /** Number of bands of the spectrogram. */
  readonly bands: number;
  /** Matrix of the second convolution. A row has the shape [channels of the first convolution][3 frames][3 bands]. */
  readonly second: Matrix;
  /** Number of channels that each convolution computes, and the weights of the layer norm over them (null = no norm). */
  readonly channels: readonly [number, number];
  readonly norms: readonly [TensorInfo | null, TensorInfo | null];
  /** Matrix that makes the first hidden state of a position. A row has the shape [bands / 4][channels of the second convolution]. */
  readonly input: Matrix;
}

/** Returns the number of values that a convolution with a kernel of three, steps of two and a border of one makes from `count` values. */
export function halved(count: number): number {
  return Math.floor((count - 1) / 2) + 1;
}
