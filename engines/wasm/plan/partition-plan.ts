// Partition plan: which thread computes which rows of each matrix, and all other parameters that the compute threads
// share. Pure arithmetic over plain data: every thread derives the division itself from the same plan.

import type { AttentionRules, Graph, GraphStep } from "../graph/graph.ts";
import type { Matrix, Norm } from "../graph/graph-tensors.ts";
import type { Activation, Hyperparameters } from "../graph/shape.ts";
import type { Mixture } from "./mixture.ts";

/** Sent to every compute thread. */
export interface PartitionPlan {
  readonly files: readonly string[];
  readonly graph: Graph;
  readonly shape: Hyperparameters;
  readonly threads: number;
  /** Tokens computed in one pass; longer steps are cut into several. */
  readonly passTokens: number;
  /** Sequences in one pass. */
  readonly maxRows: number;
  /** Logits rows of one pass. */
  readonly maxOutputs: number;
  readonly blockTokens: number;
  /** GGUF number of the KV cache's type. */
  readonly kvType: number;
  readonly pagesPerThread: number;
  readonly blocksPerSequence: number;
  /** Highest rank of a LoRA adapter; 0 = no adapters. */
  readonly adapterRank: number;
  /** Null if no classifier weighs adapters. */
  readonly mixture: Mixture | null;
}

/**
 * Layers of the KV cache. The first pass of a mixture has its own layers, after the model's. An encoder reuses one,
 * since its keys and values live no longer than a layer.
 */
export function kvLayers({ graph, shape, mixture }: Pick<PartitionPlan, "graph" | "shape" | "mixture">): number {
  if (graph.isEncoder) return 1;
  return mixture ? 2 * shape.layers : shape.layers;
}

/** Rows of a matrix are packed this many at a time. */
export const rowGrain = 16;

/** Consecutive rows of one matrix that one thread computes. */
export interface Piece {
  readonly matrix: Matrix;
  readonly firstRow: number;
  readonly rows: number;
  /** `rows` rounded up to a multiple of 16: the number packed and computed. */
  readonly padded: number;
  /** Offset of its results in the thread's slab, and in the joined rows, in floats. */
  readonly slabColumn: number;
  readonly column: number;
}

/** One thread's part of several matrices that share their input. */
export interface Share {
  readonly pieces: readonly Piece[];
  /** Floats of a row of the thread's slab, padding included. */
  readonly stride: number;
}

/** Cuts the rows of all matrices, in order, into equal shares of whole units of `unit` rows (a multiple of 16). */
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

/** The least multiple of 16 rows that holds whole heads. */
export function headUnit(headLength: number): number {
  let unit = headLength;
  while (unit % rowGrain !== 0) unit += headLength;
  return unit;
}

/** A step of a layer with its matrices divided; index = thread. */
export type DividedStep =
  | { readonly kind: "norm"; readonly norm: Norm | null }
  | { readonly kind: "hiddenNorm"; readonly norm: Norm }
  | DividedAttention
  | DividedFeedForward
  | DividedExperts;

export interface DividedAttention extends AttentionRules {
  readonly kind: "attention";
  /** Number of the adapter site of its first products (adapters/sites.ts); the output's site is the next number. */
  readonly site: number;
  /** Shares of queries, keys and values. */
  readonly input: readonly Share[];
  readonly output: readonly Share[];
}

export interface DividedFeedForward {
  readonly kind: "feedForward";
  /** As for attention. */
  readonly site: number;
  readonly gate: readonly Share[] | null;
  readonly up: readonly Share[];
  readonly down: readonly Share[];
  readonly activation: Activation;
  readonly postNorm: Norm | null;
}

/**
 * Adapters do not apply to experts. All experts' rows are divided alike: gate, up and down are the shares of one
 * expert.
 */
export interface DividedExperts {
  readonly kind: "experts";
  readonly router: readonly Share[];
  readonly gate: readonly Share[];
  readonly up: readonly Share[];
  readonly down: readonly Share[];
  readonly activation: Activation;
  readonly normalised: boolean;
}

export interface DividedGraph {
  readonly embedding: readonly Share[];
  readonly layers: readonly (readonly DividedStep[])[];
  /** Tables added to the embedding, held whole by every thread; null = none. */
  readonly positions: Share | null;
  readonly tokenType: Share | null;
  /** Empty shares if the model has no logits. */
  readonly output: readonly Share[];
  readonly outputSite: number;
  /** The scoring head, held by the leader only; null = none. */
  readonly scoring: { readonly dense: Share | null; readonly output: Share | null };
  /** The classifier of a mixture; empty if there is none. */
  readonly classifier: readonly (readonly Share[])[];
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
    tokenType: undivided(graph.tokenType),
    layers,
    output: graph.output ? whole(graph.output) : Array<Share>(threads).fill({ pieces: [], stride: 0 }),
    outputSite: sites,
    scoring: { dense: undivided(head?.dense), output: undivided(head?.output) },
    classifier,
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
      return { ...rules, router: whole(router), gate: whole(gate), up: whole(up), down: whole(down) };
    }
  }
}
