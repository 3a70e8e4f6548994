// Steps of a conformer's layers that other encoders do not have, and its outer layers: the parts before and after the layers. Plain data,
// part of the graph. gemma4-graph.ts and lfm2-graph.ts build this data.
import type { TensorInfo } from "../../../files/gguf/tensors.ts";
import type { Matrix, Norm } from "../../graph/graph-tensors.ts";
import type { MatrixStep, NormStep } from "../../graph/projector-steps.ts";

/**
 * Attention with relative positions: the score of a key is (query + contentBias) * key + (query + positionBias) * vector of their
 * distance.
 */
export interface RelativeAttentionStep extends RelativeAttentionRules {
  readonly kind: "relativeAttention";
  readonly query: Matrix;
  readonly key: Matrix;
  readonly value: Matrix;
  readonly output: Matrix;
  /** Projects the sinusoidal encoding of a distance to its vector. */
  readonly relativePosition: Matrix;
}

/** Parameters of attention with relative positions, without its matrices. */
export interface RelativeAttentionRules {
  /** Number of positions before and after a position to which it attends; Infinity = all. */
  readonly behind: number;
  readonly ahead: number;
  /** Softcap of the scores; 0 = none. */
  readonly softcap: number;
  /**
   * Encoding of a distance. "blocks": all sines before all cosines, with wavelengths up to 10,000 times the shortest. "interleaved": sine and
   * cosine in turn, with wavelengths up to almost that.
   */
  readonly encoding: "blocks" | "interleaved";
  /** Biases of the queries, shape [heads][headLength]; null = none. */
  readonly contentBias: TensorInfo | null;
  readonly positionBias: TensorInfo | null;
  /** Factors of all queries (their biases included) and of all keys. */
  readonly queryFactor: number;
  readonly keyFactor: number;
  /** Factors of the floats of each query head and each key head; null = 1. */
  readonly queryScale: TensorInfo | null;
  readonly keyScale: TensorInfo | null;
  readonly postNorm: Norm | null;
}

/**
 * Convolution module: product with `pointwise`, GLU, depthwise convolution over positions, norm, SiLU, product with `output`.
 */
export interface ConvolutionModuleStep extends ConvolutionModuleRules {
  readonly kind: "convolutionModule";
  readonly pointwise: Matrix;
  readonly output: Matrix;
}

/** Parameters of a convolution module, without its matrices. */
export interface ConvolutionModuleRules {
  /** Depthwise kernel, shape [width][kernelLength]. Its last `ahead` values belong to later positions. */
  readonly kernel: TensorInfo;
  readonly kernelLength: number;
  readonly ahead: number;
  /** Bias of the depthwise convolution; null = none. */
  readonly bias: TensorInfo | null;
  /** "rms": an RMS norm. "affine": each float is multiplied by its weight, and its bias is added (a batch norm). null = no norm. */
  readonly norm: { readonly of: "rms" | "affine"; readonly norm: Norm } | null;
}

/** Layers before and after those of a conformer, or of a projector of samples, which has no layers. */
export interface ConformerOuterLayers {
  /** null: the input rows are the first hidden states. */
  readonly subsampling: Subsampling | null;
  /** Steps from the hidden states after the last layer to the embeddings. */
  readonly projector: readonly ConformerProjectorStep[];
  /** Number of floats in an embedding. */
  readonly length: number;
}

export type ConformerProjectorStep = NormStep | MatrixStep;

/** Subsampling: convolutions over frames and bands of the spectrogram, each with stride 2, which turn several frames into one position. */
export interface Subsampling {
  /** Number of bands of the spectrogram. */
  readonly bands: number;
  /** The matrix of the first convolution is the graph's embedding matrix. */
  readonly stages: readonly SubsamplingStage[];
  /**
   * Matrix that makes the first hidden state of a position from the outputs of the last stage: [bands][channels], or [channels][bands] if
   * `areChannelsFirst`.
   */
  readonly inputProjection: Matrix;
  readonly areChannelsFirst: boolean;
}

/** A convolution with stride 2 (whole, or depthwise and then pointwise), a layer norm over its channels if there is one, and ReLU. */
export interface SubsamplingStage {
  /** Kernels: a row has the shape [input channels][3 frames][3 bands], or [input channels] if the 3 x 3 values are those of `depthwise`. */
  readonly matrix: Matrix;
  /** Depthwise convolution before the matrix: kernel [channels][3 frames][3 bands], and bias; null = none. */
  readonly depthwise: { readonly kernel: TensorInfo; readonly bias: TensorInfo } | null;
  /** Number of output channels. */
  readonly channels: number;
  /** Weights of the layer norm; null = no norm. */
  readonly norm: TensorInfo | null;
}

/** Side of the kernels of subsampling, in frames and in bands. */
export const kernelSide = 3;

/** Returns the number of outputs of `convolutions` convolutions over `count` values, each with kernel 3, stride 2 and padding 1. */
export function stridedLength(count: number, convolutions = 1): number {
  return Math.ceil(count / 2 ** convolutions);
}
