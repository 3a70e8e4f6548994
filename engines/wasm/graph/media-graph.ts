// Media graph: the parts that graphs of image encoders and of audio encoders have in common. vision/vision-graph.ts and
// audio/audio-graph.ts build these graphs from projector files.
import { ServerError } from "../../../runtime/errors.ts";
import type { TensorTable } from "../../files/gguf/tensors.ts";
import type { Graph } from "./graph.ts";
import { GraphTensors } from "./graph-tensors.ts";
import { longestHead } from "./hyperparameters.ts";
import type { Rope } from "./ropes.ts";
import type { Activation, Hyperparameters } from "./shape.ts";

/** Graph of the encoder in a projector file, and the sizes of its passes. */
export interface MediaGraph {
  readonly graph: Graph;
  readonly shape: Hyperparameters;
  /** Maximum number of tokens in a pass. */
  readonly tokens: number;
  /** Maximum number of rows in a pass. A row is a range of tokens that attend to each other. */
  readonly rows: number;
  /** Number of floats in a token's input row. */
  readonly inputFloats: number;
}

interface MediaShape extends Pick<Hyperparameters, "layers" | "width" | "heads" | "feedForward" | "epsilon"> {
  readonly activation: Activation;
  readonly tokens: number;
  readonly ropes: readonly Rope[];
  /** Number of floats of a head that each rope rotates; absent = the whole head. */
  readonly rotated?: number;
}

/** Fields of Graph that have the same values in all image and audio encoders. */
export const mediaGraphParts = {
  isEncoder: true,
  tokenType: null,
  output: null,
  pooling: { kind: null, length: 0, dense: [], head: null },
} as const satisfies Partial<Graph>;

/** Opens the tensors of a projector file for building a graph. `readElsewhere`: see GraphTensors. */
export function mediaTensors(table: TensorTable, readElsewhere: readonly string[] = []): GraphTensors {
  return new GraphTensors(table, readElsewhere, "fetch the projector file with F16 or F32 weights");
}

/** Throws `unsupported` if the kernels cannot compute heads of this length. */
export function checkHeads(media: "image" | "audio", { width, heads }: Pick<MediaShape, "width" | "heads">): void {
  const length = width / heads;
  if (length % 4 === 0 && length <= longestHead) return;
  const message = `the ${media} encoder has ${heads} heads of ${length} floats; expected a multiple of 4, at most ${longestHead}`;
  throw new ServerError("unsupported", message, { param: "mmproj" });
}

/** Returns the hyperparameters of an image or audio encoder, which has no vocabulary and no sliding windows. */
export function mediaShape({ tokens, ropes, activation, ...sizes }: MediaShape): Hyperparameters {
  const { layers, width, heads, feedForward, epsilon } = sizes;
  const headLength = width / heads;
  const { rotated = headLength } = sizes;
  return {
    architecture: "clip",
    ...{ layers, width, feedForward, heads, kvHeads: heads, headLength, epsilon },
    rotated: ropes.length > 0 ? rotated : 0,
    trainedContext: tokens,
    vocabSize: 0,
    experts: null,
    embeddingScale: 1,
    residualScale: 1,
    alibi: 0,
    expertInterval: 0,
    stackedInputs: 0,
    logitScale: 1,
    logitSoftcap: 0,
    attentionScale: 1 / Math.sqrt(headLength),
    attentionSoftcap: 0,
    window: 0,
    slides: [],
    activation,
    ropes,
    queryRope: null,
    longRope: null,
  };
}
