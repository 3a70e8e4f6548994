// Partition plan: the parameters that all compute threads share, and the division of each matrix's rows among the
// threads. Only arithmetic over plain data: every thread computes the same division from the same plan.

import type { ConvolutionModuleRules, RelativeAttentionRules } from "../audio/conformer/steps.ts";
import type { AttentionRules, Graph, GraphStep } from "../graph/graph.ts";
import type { Matrix, Norm } from "../graph/graph-tensors.ts";
import { projectorMatrices } from "../graph/projector-matrices.ts";
import type { Activation, Hyperparameters } from "../graph/shape.ts";
import { resamplerOf } from "../vision/vision-outer-layers.ts";
import type { Mixture } from "./mixture.ts";

/** Plan from which every thread computes the same division of the rows. The plan is sent to every compute thread. */
export interface PartitionPlan {
  readonly files: readonly string[];
  readonly graph: Graph;
  readonly shape: Hyperparameters;
  readonly threads: number;
  /** Maximum number of tokens in one pass; longer steps are split into several passes. */
  readonly passTokens: number;
  /** Maximum number of sequences in one pass. */
  readonly maxRows: number;
  /** Maximum number of logits rows in one pass. */
  readonly maxOutputs: number;
  readonly blockTokens: number;
  /** GGUF type number of the KV cache's elements. */
  readonly kvType: number;
  readonly pagesPerThread: number;
  readonly blocksPerSequence: number;
  /**
   * Number of floats of an input row, which replaces the embedding of a token (images, audio); 0 = the model has no
   * input rows.
   */
  readonly inputFloats: number;
  /** Maximum rank of a LoRA adapter; 0 = no adapters. */
  readonly adapterRank: number;
  /** Parameters of the X-LoRA mixture (adapters weighted by a classifier); null if the model is not a mixture. */
  readonly mixture: Mixture | null;
}

/**
 * Returns the number of layers in the KV cache. For an X-LoRA mixture, this is twice the number of the model's layers:
 * the layers of the first pass are stored after the model's layers. An encoder reuses one layer, because its keys and
 * values are discarded after their layer.
 */
export function kvLayers({ graph, shape, mixture }: Pick<PartitionPlan, "graph" | "shape" | "mixture">): number {
  if (graph.isEncoder) return 1;
  return mixture ? 2 * shape.layers : shape.layers;
}

/** Number of matrix rows that are packed together. A thread's rows of a matrix are padded to a multiple of this number. */
export const rowGrain = 16;

/** Piece: consecutive rows of one matrix that one thread computes. */
export interface Piece {
  readonly matrix: Matrix;
  readonly firstRow: number;
  readonly rows: number;
  /** `rows` rounded up to a multiple of 16: the number of rows packed and computed. */
  readonly padded: number;
  /**
   * Offsets in floats of the piece's results: `slabColumn` in a row of the thread's own results (its slab), `column` in
   * a row that joins the results of all threads.
   */
  readonly slabColumn: number;
  readonly column: number;
}

/** Share: one thread's part of several matrices that have the same input. */
export interface Share {
  readonly pieces: readonly Piece[];
  /** Number of floats in a row of the thread's own results (its slab), including padding. */
  readonly stride: number;
}

/**
 * Divides the rows of all matrices, in order, into one share per thread. The shares are as equal as possible. A share
 * consists of whole units of `unit` rows; `unit` is a multiple of 16.
 */
export function divide(matrices: readonly Matrix[], unit: number, threads: number): Share[] {
  const units = matrices.flatMap((matrix, at) => {
    const column = matrices.slice(0, at).reduce((sum, { rows }) => sum + rows, 0);
    return Array.from({ length: Math.ceil(matrix.rows / unit) }, (_, i) => ({ matrix, row: i * unit, column }));
  });
  return Array.from({ length: threads }, (_, thread) => {
    const from = Math.floor((units.length * thread) / threads);
    const to = Math.floor((units.length * (thread + 1)) / threads);
    const pieces: Piece[] = [];
    let stride = 0;
    for (const matrix of matrices) {
      const own = units.slice(from, to).filter((part) => part.matrix === matrix);
      const [first] = own;
      const last = own.at(-1);
      if (!first || !last) continue;
      const rows = Math.min(last.row + unit, matrix.rows) - first.row;
      const padded = Math.ceil(rows / rowGrain) * rowGrain;
      pieces.push({
        matrix,
        firstRow: first.row,
        rows,
        padded,
        slabColumn: stride,
        column: first.column + first.row,
      });
      stride += padded;
    }
    return { pieces, stride };
  });
}

/** Returns the smallest multiple of 16 rows that consists of whole heads. */
export function headUnit(headLength: number): number {
  let unit = headLength;
  while (unit % rowGrain !== 0) unit += headLength;
  return unit;
}

/** A step of a layer, with its matrices divided among the threads. Each list of shares is indexed by thread. */
export type DividedStep =
  | { readonly kind: "norm"; readonly norm: Norm | null }
  | { readonly kind: "hiddenNorm"; readonly norm: Norm }
  | DividedAttention
  | DividedFeedForward
  | DividedExperts
  | DividedRelativeAttention
  | DividedConvolutionModule;

export interface DividedAttention extends AttentionRules {
  readonly kind: "attention";
  /**
   * Index of the adapter site (a group of matrices with the same input; adapters/sites.ts) of queries, keys and values.
   * The output matrix belongs to the next site.
   */
  readonly site: number;
  /** Shares of queries, keys and values. */
  readonly input: readonly Share[];
  readonly output: readonly Share[];
}

export interface DividedFeedForward {
  readonly kind: "feedForward";
  /**
   * Index of the adapter site (a group of matrices with the same input) of gate and up. The matrix `down` belongs to
   * the next site.
   */
  readonly site: number;
  readonly gate: readonly Share[] | null;
  readonly up: readonly Share[];
  readonly down: readonly Share[];
  readonly activation: Activation;
  readonly postNorm: Norm | null;
  readonly factor?: number;
}

/**
 * A divided experts step. Adapters do not apply to experts. The rows of all experts are divided in the same way, so
 * `gate`, `up` and `down` are the shares of a single expert.
 */
export interface DividedExperts {
  readonly kind: "experts";
  readonly router: readonly Share[];
  readonly gate: readonly Share[] | null;
  readonly up: readonly Share[];
  readonly down: readonly Share[];
  readonly activation: Activation;
  readonly normalised: boolean;
}

export interface DividedRelativeAttention extends RelativeAttentionRules {
  readonly kind: "relativeAttention";
  /** Shares of queries, keys and values. */
  readonly input: readonly Share[];
  readonly output: readonly Share[];
  readonly relativePosition: readonly Share[];
}

export interface DividedConvolutionModule extends ConvolutionModuleRules {
  readonly kind: "convolutionModule";
  readonly pointwise: readonly Share[];
  readonly output: readonly Share[];
}

export interface DividedGraph {
  readonly embedding: readonly Share[];
  readonly layers: readonly (readonly DividedStep[])[];
  /** Tables whose rows are added to the embedding. Every thread has the whole tables; null = none. */
  readonly positions: Share | null;
  /** Table of the positions of rows of a tile, if it is apart from that of columns. */
  readonly rowPositions: Share | null;
  readonly tokenType: Share | null;
  /** Shares of the output matrix; the shares are empty if the model has no logits. */
  readonly output: readonly Share[];
  readonly outputSite: number;
  /** Dense layers after the pooling. Only the leader (thread 0) has their weights. */
  readonly dense: readonly Share[];
  /** Scoring head. Only the leader (thread 0) has its weights; null = none. */
  readonly scoring: { readonly dense: Share | null; readonly output: Share | null };
  /** Layers of the classifier of an X-LoRA mixture; empty if the model is not a mixture. */
  readonly classifier: readonly (readonly Share[])[];
  /** Second patch convolution of an image encoder; null = none. */
  readonly secondEmbedding: readonly Share[] | null;
  /** Shares of the projector's matrices; empty if the model is not an image or audio encoder. */
  readonly projector: readonly (readonly Share[])[];
  /** Matrices of the resampler of an image encoder; null = no resampler. */
  readonly resampler: DividedResampler | null;
}

/**
 * Matrices of a resampler. Every thread has all learned queries. The matrices query, key and value are divided in the
 * same way, by whole heads.
 */
export interface DividedResampler {
  readonly queries: Share;
  readonly query: readonly Share[];
  readonly key: readonly Share[];
  readonly value: readonly Share[];
}

export function divideGraph({
  graph,
  shape,
  threads,
  mixture,
}: Pick<PartitionPlan, "graph" | "shape" | "threads" | "mixture">): DividedGraph {
  const whole = (matrix: Matrix) => divide([matrix], rowGrain, threads);
  let sites = 0;
  const layers = graph.layers.map((layer) =>
    layer.map((found) => {
      const step = divideStep(found, sites, shape, threads);
      if ("site" in step) sites += 2;
      return step;
    }),
  );
  const classifier = mixture?.classifier.map(whole) ?? [];
  const { head } = graph.pooling;
  const undivided = (matrix: Matrix | null | undefined) =>
    matrix ? (divide([matrix], rowGrain, 1)[0] as Share) : null;
  return {
    embedding: whole(graph.embedding),
    positions: undivided(graph.positions),
    rowPositions: undivided(rowPositionsOf(graph)),
    tokenType: undivided(graph.tokenType),
    layers,
    output: graph.output ? whole(graph.output) : Array<Share>(threads).fill({ pieces: [], stride: 0 }),
    outputSite: sites,
    dense: graph.pooling.dense.map((matrix) => undivided(matrix) as Share),
    scoring: { dense: undivided(head?.dense), output: undivided(head?.output) },
    classifier,
    secondEmbedding: graph.vision?.secondEmbedding ? whole(graph.vision.secondEmbedding) : null,
    projector: projectorMatrices(graph).map(whole),
    resampler: divideResampler(graph, threads),
  };
}

/** Returns the table of the positions of rows of a tile; null if there is none apart from that of columns. */
export function rowPositionsOf({ vision }: Pick<Graph, "vision">): Matrix | null {
  const table = vision?.positionTable;
  return table?.lookup === "sum" ? table.rows : null;
}

function divideResampler({ vision }: Graph, threads: number): DividedResampler | null {
  const step = vision && resamplerOf(vision.projector);
  if (!step) return null;
  const heads = (matrix: Matrix) => divide([matrix], headUnit(step.headLength), threads);
  return {
    queries: divide([step.queries], rowGrain, 1)[0] as Share,
    query: heads(step.query),
    key: heads(step.key),
    value: heads(step.value),
  };
}

function divideStep(step: GraphStep, site: number, { headLength }: Hyperparameters, threads: number): DividedStep {
  const whole = (matrix: Matrix) => divide([matrix], rowGrain, threads);
  switch (step.kind) {
    case "norm":
    case "hiddenNorm":
      return step;
    case "attention": {
      const { query, key, value, output, ...rules } = step;
      const input = divide([query, key, value], headUnit(headLength), threads);
      return { ...rules, site, input, output: whole(output) };
    }
    case "feedForward": {
      const { gate, up, down, ...rules } = step;
      return { ...rules, site, gate: gate && whole(gate), up: whole(up), down: whole(down) };
    }
    case "experts": {
      const { router, gate, up, down, ...rules } = step;
      return { ...rules, router: whole(router), gate: gate && whole(gate), up: whole(up), down: whole(down) };
    }
    case "relativeAttention": {
      const { query, key, value, output, relativePosition, ...rules } = step;
      const input = divide([query, key, value], rowGrain, threads);
      return { ...rules, input, output: whole(output), relativePosition: whole(relativePosition) };
    }
    case "convolutionModule":
      return { ...step, pointwise: whole(step.pointwise), output: whole(step.output) };
  }
}
