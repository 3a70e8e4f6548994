// Scratch memory of attention with relative positions on one compute thread: addresses and sizes.
import type { Graph } from "../../graph/graph.ts";
import type { Hyperparameters } from "../../graph/shape.ts";

/** Number of queries that are computed at once. */
export const blockTokens = 64;
/** The kernels take matrices whose numbers of rows and columns are multiples of these. */
export const rowGrain = 16;
export const columnGrain = 32;
const floatBytes = 4;

/** Addresses of the parts, and the number of floats of a query or key, padded. */
export interface RelativeScratch {
  /** Rows of a matrix before they are packed. */
  readonly source: number;
  readonly keys: number;
  readonly values: number;
  readonly positions: number;
  readonly queries: number;
  readonly scores: number;
  readonly positionScores: number;
  /** Weighted sums of values. */
  readonly sums: number;
  readonly depth: number;
  readonly end: number;
}

interface Sizes {
  readonly graph: Pick<Graph, "layers">;
  readonly shape: Pick<Hyperparameters, "headLength">;
  readonly passTokens: number;
}

export function padded(count: number, grain: number): number {
  return Math.ceil(count / grain) * grain;
}

/** Lays out the memory from the address `start` on. Without a step of this kind, it has no bytes. */
export function layOutRelative({ graph, shape, passTokens }: Sizes, start: number): RelativeScratch {
  const steps = graph.layers.flat().filter((step) => step.kind === "relativeAttention");
  const reach = Math.max(0, ...steps.map(({ behind, ahead }) => behind + ahead));
  const most = steps.length === 0 ? 0 : Math.min(passTokens, blockTokens + reach);
  const [rows, columns] = [padded(most, rowGrain), padded(most, columnGrain)];
  const queries = steps.length === 0 ? 0 : blockTokens;
  const distances = padded(most + queries, rowGrain);
  const depth = padded(shape.headLength, columnGrain);
  let end = start;
  const take = (floats: number) => {
    const address = end;
    end += floats * floatBytes;
    return address;
  };
  return {
    source: take(Math.max(distances, columns) * depth),
    keys: take(rows * depth),
    values: take(padded(shape.headLength, rowGrain) * columns),
    positions: take(distances * depth),
    queries: take(queries * depth),
    scores: take(queries * columns),
    positionScores: take(queries * distances),
    sums: take(queries * padded(shape.headLength, rowGrain)),
    depth,
    end,
  };
}
