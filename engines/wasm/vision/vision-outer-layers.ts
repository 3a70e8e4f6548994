// Outer layers of an image encoder: its parts before and after its layers. Plain data, part of the graph. The embedding of such a
// graph is the matrix that multiplies patches; vision-graph.ts builds the graph, vision-pass.ts computes it.
import type { TensorInfo } from "../../files/gguf/tensors.ts";
import type { Matrix, Norm } from "../graph/graph-tensors.ts";
import type { Activation } from "../graph/shape.ts";

/** Step of the projector: a norm, a matrix with its bias, followed by an activation if there is one, or a resampler. */
export type ProjectorStep =
  | { readonly kind: "norm"; readonly norm: Norm; readonly of: "rms" | "layer"; readonly epsilon: number }
  | { readonly kind: "matrix"; readonly matrix: Matrix; readonly activation: Activation | null }
  | ResamplerStep;

/**
 * Attention of learned queries over the rows of the patches. Keys, but not values, have the sine and cosine of the patch's
 * column and row added to the rows.
 */
export interface ResamplerStep {
  readonly kind: "resampler";
  /** One row for each query; these are normed. */
  readonly queries: Matrix;
  readonly norm: Norm;
  readonly epsilon: number;
  readonly query: Matrix;
  readonly key: Matrix;
  readonly value: Matrix;
  readonly headLength: number;
}

/** Returns the resampler of a projector; null: it has none. */
export function resamplerOf(projector: readonly ProjectorStep[]): ResamplerStep | null {
  return projector.find((step) => step.kind === "resampler") ?? null;
}

export interface VisionOuterLayers {
  /** Matrix of a second convolution of the patches, added to the first; null: none. Video would give it the next frame. */
  readonly secondEmbedding: Matrix | null;
  /** Vector that is the first token, before the patches; null: none. It is dropped after the layers. */
  readonly classEmbedding: TensorInfo | null;
  /**
   * How the patches of each square of `side` x `side` become one row: their average, or all of them side by side.
   * "adjacent": all side by side, and the patches of a square are adjacent tokens. A side of 1 leaves the patches as they
   * are. "interleaved": all side by side, the first float of each, then the second of each.
   */
  readonly merge: { readonly kind: "average" | "concatenate" | "interleaved" | "adjacent"; readonly side: number };
  /**
   * Number of positions of a side, if those of tiles of any size are spread over them: the table has its square. Null: each
   * token has its own position.
   */
  readonly positionBuckets: number | null;
  /** Vector that is one more embedding at the end of each row but the last; null: none. */
  readonly rowEnd: TensorInfo | null;
  readonly projector: readonly ProjectorStep[];
  /** Number of floats of an embedding. */
  readonly length: number;
}
