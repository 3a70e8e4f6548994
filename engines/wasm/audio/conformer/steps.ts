// Steps of a conformer's layers that other encoders do not have, and its outer layers: the parts before and after the layers. Plain data,
// part of the graph. conformer-graph.ts builds this data.
import type { TensorInfo } from "../../../files/gguf/tensors.ts";
import type { Matrix, Norm } from "../../graph/graph-tensors.ts";

/** Causal local attention with relative positions: the score of a key is query * key + query * vector of their distance. */
export interface LocalAttentionStep extends LocalAttentionRules {
  readonly kind: "localAttention";
  readonly query: Matrix;
  readonly key: Matrix;
  readonly value: Matrix;
  readonly output: Matrix;
  /** Projects the sinusoidal encoding of a distance to its vector. */
  readonly relativePosition: Matrix;
}

/** Parameters of local attention, without its matrices. */
export interface LocalAttentionRules {
  /** Number of positions to which a position attends, including itself. */
  readonly reach: number;
  /** Softcap of the scores. */
  readonly softcap: number;
  /** Factors of all queries and of all keys. */
  readonly queryFactor: number;
  readonly keyFactor: number;
  /** Factors of the floats of each query head and each key head; null = 1. */
  readonly queryScale: TensorInfo | null;
  readonly keyScale: TensorInfo | null;
  readonly postNorm: Norm | null;
}

/**
 * Convolution module: product with `pointwise`, GLU, causal depthwise convolution over positions, RMS norm, SiLU, product with
 * `output`.
 */
export interface ConvolutionModuleStep extends ConvolutionModuleRules {
  readonly kind: "convolutionModule";
  readonly pointwise: Matrix;
  readonly output: Matrix;
}

/** Parameters of a convolution module, without its matrices. */
export interface ConvolutionModuleRules {
  /** Depthwise kernel, shape [width][kernelLength]. The last value belongs to the position itself. */
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
 * Subsampling: two convolutions over frames and bands of the spectrogram, each with stride 2, a layer norm over the channels, and ReLU. They
 * turn four frames into one position. The graph's embedding matrix is the first convolution.
 */
export interface Subsampling {
  /** Number of bands of the spectrogram. */
  readonly bands: number;
  /** Matrix of the second convolution. A row has the shape [channels of the first convolution][3 frames][3 bands]. */
  readonly secondConvolution: Matrix;
  /** Number of output channels of each convolution. */
  readonly channels: readonly [number, number];
  /** Weights of the layer norm after each convolution; null = no norm. */
  readonly norms: readonly [TensorInfo | null, TensorInfo | null];
  /** Matrix that makes the first hidden state of a position. A row has the shape [bands / 4][channels of the second convolution]. */
  readonly inputProjection: Matrix;
}

/** Side of the kernel of both convolutions, in frames and in bands. */
export const kernelSide = 3;

/** Returns the number of outputs of a convolution over `count` values with kernel 3, stride 2 and padding 1. */
export function stridedLength(count: number): number {
  return Math.ceil(count / 2);
}
