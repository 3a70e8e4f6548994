// Outer layers of an image encoder: the parts before and after its transformer layers. Plain data, part of the graph. The graph's embedding
// matrix is the patch convolution. vision-graph.ts builds this data, vision-pass.ts computes these layers.
import type { TensorInfo } from "../../files/gguf/tensors.ts";
import type { Matrix, Norm } from "../graph/graph-tensors.ts";
import type { MatrixStep, NormStep } from "../graph/projector-steps.ts";

/** Step of the projector. */
export type ProjectorStep = NormStep | StandardiseStep | MatrixStep | ResamplerStep;

/** Computes (x * factor - mean) * scale for each float of a row; null = left out. */
export interface StandardiseStep {
  readonly kind: "standardise";
  readonly factor: number;
  readonly mean: TensorInfo | null;
  readonly scale: TensorInfo | null;
}

/**
 * Step of a resampler: cross-attention from learned queries to the rows of the patches. For the keys, but not for the values, the sine and
 * cosine of the patch's column and row are added to the patch's row.
 */
export interface ResamplerStep {
  readonly kind: "resampler";
  /** Learned queries, one per row. `norm` is applied to them. */
  readonly queries: Matrix;
  readonly norm: Norm;
  readonly epsilon: number;
  readonly query: Matrix;
  readonly key: Matrix;
  readonly value: Matrix;
  readonly headLength: number;
}

/**
 * Merger of DeepStack: makes a further vector of each embedding from the hidden states after a layer. Its steps are like those of a
 * projector.
 */
export interface StackedMerger {
  readonly layer: number;
  readonly steps: readonly ProjectorStep[];
}

/** Returns the resampler step of a projector; null if the projector has none. */
export function resamplerOf(projector: readonly ProjectorStep[]): ResamplerStep | null {
  return projector.find((step) => step.kind === "resampler") ?? null;
}

/** Returns the steps of the projector, and of all mergers in the order of their layers. */
export function visionSteps({ projector, stacked }: Pick<VisionOuterLayers, "projector" | "stacked">): ProjectorStep[] {
  return [...projector, ...stacked.flatMap(({ steps }) => steps)];
}

export interface VisionOuterLayers {
  /** Layer norms of the pixels of a patch, and of the hidden states before positions are added; null = none. */
  readonly patchNorm: Norm | null;
  readonly hiddenNorm: Norm | null;
  /**
   * Matrix of a second patch convolution, whose result is added to that of the first; null = none. For video, it would multiply the next
   * frame; for an image, both matrices multiply the same patches.
   */
  readonly secondEmbedding: Matrix | null;
  /**
   * Class embedding: a vector that is used as the first token, before the patches; null = none. Its hidden state is dropped after the last
   * layer.
   */
  readonly classEmbedding: TensorInfo | null;
  /**
   * How the patches of each square of `side` x `side` patches are merged into one row. "average": their mean. "concatenate": one patch
   * after another. "adjacent": like "concatenate", for encoders in which the patches of a square are already adjacent tokens.
   * "interleaved": the first float of each patch, then the second float of each patch, and so on. If `side` is 1, patches are not merged.
   */
  readonly merge: { readonly kind: "average" | "concatenate" | "interleaved" | "adjacent"; readonly side: number };
  /**
   * Position table for tiles of any size. Over a square table of `side` x `side` positions, the patches of a tile are spread evenly.
   * "nearest": each patch takes one position. "linear": each patch interpolates the four nearest positions; corner patches take the corner
   * positions. "sum": there are two tables, and each patch takes the sum of the positions of its column and of its row. Null: the table has
   * one position for each token.
   */
  readonly positionTable:
    | { readonly lookup: "nearest" | "linear"; readonly side: number }
    | { readonly lookup: "sum"; readonly columns: Matrix; readonly rows: Matrix }
    | null;
  /** Embedding that is inserted after each row of the tile except the last; null = none. */
  readonly rowEnd: TensorInfo | null;
  readonly projector: readonly ProjectorStep[];
  /** Mergers of the further vectors of an embedding, in the order of their layers; empty = an embedding is one vector. */
  readonly stacked: readonly StackedMerger[];
  /** Number of floats in an embedding. */
  readonly length: number;
}
