// Weight lists: the matrices of a graph, the vectors of its norms, and the parts of them that one thread holds.
// thread-memory.ts assigns addresses to the weights; weights.ts loads them.
import type { TensorInfo } from "../../files/gguf/tensors.ts";
import {
  type DividedGraph,
  type DividedStep,
  type PartitionPlan,
  type Piece,
  rowPositionsOf,
  type Share,
} from "../plan/partition-plan.ts";
import { resamplerOf, visionSteps } from "../vision/vision-outer-layers.ts";
import type { GraphStep } from "./graph.ts";
import type { Matrix, Norm } from "./graph-tensors.ts";
import { projectorMatrices } from "./projector-matrices.ts";

/**
 * Returns the parts that a thread holds of all matrices, in order of use. If the output matrix is the embedding, the
 * embedding's part appears twice.
 */
export function threadPieces(divided: DividedGraph, thread: number): Piece[] {
  const steps = divided.layers.flat().flatMap((step) => stepShares(step));
  const { positions, rowPositions, tokenType, scoring, dense, projector, resampler, secondEmbedding } = divided;
  const second = secondEmbedding ? [secondEmbedding] : [];
  const attended = resampler ? [resampler.query, resampler.key, resampler.value] : [];
  const shared = [divided.embedding, ...second, ...steps, ...projector, ...attended, divided.output].map(
    (shares) => shares[thread] as Share,
  );
  const undivided = [
    resampler?.queries,
    positions,
    rowPositions,
    tokenType,
    ...(thread === 0 ? [...dense, scoring.dense, scoring.output] : []),
  ];
  return [...shared, ...undivided].flatMap((share) => share?.pieces ?? []);
}

/** Returns the parts of the classifier of an X-LoRA mixture that a thread holds. */
export function classifierPieces({ classifier }: DividedGraph, thread: number): Piece[] {
  return classifier.flatMap((shares) => (shares[thread] as Share).pieces);
}

/** Returns all matrices of the graph and of the classifier of an X-LoRA mixture. */
export function matrices({ graph, mixture }: PartitionPlan): Matrix[] {
  const { embedding, positions, tokenType, output, layers, pooling, vision } = graph;
  const resampler = vision && resamplerOf(vision.projector);
  const attended = resampler ? [resampler.queries, resampler.query, resampler.key, resampler.value] : [];
  const pooled = [...pooling.dense, pooling.head?.dense, pooling.head?.output];
  const projector = [...projectorMatrices(graph), ...attended];
  const ends = [
    embedding,
    vision?.secondEmbedding,
    positions,
    rowPositionsOf({ vision }),
    tokenType,
    output,
    ...pooled,
    ...projector,
  ];
  return [...ends.filter((matrix) => !!matrix), ...layers.flat().flatMap(stepMatrices), ...(mixture?.classifier ?? [])];
}

function stepMatrices(step: GraphStep): Matrix[] {
  switch (step.kind) {
    case "norm":
    case "hiddenNorm":
      return [];
    case "attention":
      return [step.query, step.key, step.value, step.output];
    case "feedForward":
      return [...(step.gate ? [step.gate] : []), step.up, step.down];
    case "experts":
      return [step.router, ...(step.gate ? [step.gate] : []), step.up, step.down];
    case "relativeAttention":
      return [step.query, step.key, step.value, step.output, step.relativePosition];
    case "convolutionModule":
      return [step.pointwise, step.output];
  }
}

/** Returns all tensors of floats that every thread holds whole: weights of norms, clamp ranges of matrices, and other vectors. */
export function vectors(plan: PartitionPlan): TensorInfo[] {
  const { embeddingNorm, outputNorm, layers, pooling, vision, audio, conformer } = plan.graph;
  const ranges = matrices(plan).flatMap((matrix) => Object.values(matrix.clamp ?? {}) as TensorInfo[]);
  const own = [vision?.classEmbedding, vision?.rowEnd, ...ranges];
  const audioNorms = audio?.projector.map((step) => (step.kind === "norm" ? step.weight : null)) ?? [];
  const steps = vision ? visionSteps(vision) : (conformer?.projector ?? []);
  const projected = steps.map((step) => ("norm" in step ? step.norm : null));
  const scales = steps.flatMap((step) => (step.kind === "standardise" ? [step.mean, step.scale] : []));
  const norms = [
    vision?.patchNorm,
    vision?.hiddenNorm,
    embeddingNorm,
    outputNorm,
    pooling.head?.norm,
    ...layers.flat().flatMap(stepNorms),
    ...projected,
  ];
  const stages = conformer?.subsampling?.stages ?? [];
  const conformerVectors = stages.flatMap(({ norm, depthwise }) => [norm, depthwise?.kernel, depthwise?.bias]);
  return [
    ...own,
    ...scales,
    ...audioNorms,
    ...conformerVectors,
    ...layers.flat().flatMap(stepVectors),
    ...norms.flatMap((norm) => [norm?.weight, norm?.bias]),
  ].filter((tensor) => !!tensor);
}

function stepNorms(step: GraphStep): (Norm | null)[] {
  switch (step.kind) {
    case "norm":
    case "hiddenNorm":
      return [step.norm];
    case "attention":
      return [step.norms?.query ?? null, step.norms?.key ?? null, step.postNorm];
    case "feedForward":
      return [step.postNorm];
    case "experts":
      return [];
    case "relativeAttention":
      return [step.postNorm];
    case "convolutionModule":
      return [step.norm?.norm ?? null];
  }
}

/** Returns the vectors of a step that are not weights of a norm. */
function stepVectors(step: GraphStep): (TensorInfo | null)[] {
  if (step.kind === "relativeAttention") return [step.queryScale, step.keyScale, step.contentBias, step.positionBias];
  return step.kind === "convolutionModule" ? [step.kernel, step.bias] : [];
}

/**
 * Returns the shares (the rows of each thread) of a step's matrices. The first index is a matrix, or the matrices for
 * queries, keys and values together. The second index is the thread.
 */
export function stepShares(step: DividedStep): readonly (readonly Share[])[] {
  switch (step.kind) {
    case "norm":
    case "hiddenNorm":
      return [];
    case "attention":
      return [step.input, step.output];
    case "feedForward":
      return [...(step.gate ? [step.gate] : []), step.up, step.down];
    case "experts":
      return [step.router, ...(step.gate ? [step.gate] : []), step.up, step.down];
    case "relativeAttention":
      return [step.input, step.output, step.relativePosition];
    case "convolutionModule":
      return [step.pointwise, step.output];
  }
}
