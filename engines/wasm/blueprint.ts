// Owns which thread computes which rows of each matrix, and everything else that all compute threads must agree on. Pure
// arithmetic over plain data: every thread works it out for itself from the same blueprint.
import type { Graph, GraphStep, Matrix } from "./graph.ts";
import type { Hyperparameters } from "./hyperparameters.ts";
import type { Mixture } from "./mixture/mixture.ts";

/** What every compute thread is told. */
export interface Blueprint {
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
  /** Highest rank of a LoRA adapter; 0 where the model takes none. */
  readonly adapterRank: number;
  /** Null where no classifier weighs adapters. */
  readonly mixture: Mixture | null;
}

/** Layers of the KV cache: the first pass of a mixture has its own, behind the model's. */
export function kvLayers({ shape, mixture }: Pick<Blueprint, "shape" | "mixture">): number {
  return mixture ? 2 * shape.layers : shape.layers;
}

/** Rows of a matrix are packed so many at a time. */
export const rowGrain = 16;

/** Consecutive rows of one matrix that one thread computes. */
export interface Piece {
  readonly matrix: Matrix;
  readonly firstRow: number;
  readonly rows: number;
  /** `rows` up to the next multiple of 16: what is packed and computed. */
  readonly padded: number;
  /** Where its results begin in the thread's slab, and in the joined rows, in floats. */
  readonly slabColumn: number;
  readonly column: number;
}

/** What one thread computes of several matrices that share their input. */
export interface Share {
  readonly pieces: readonly Piece[];
  /** Floats of a row of the thread's slab, padding included. */
  readonly stride: number;
}

/** Cuts the matrices' rows, one after the other, into equal shares of whole units of `unit` rows (a multiple of 16). */
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
  | { readonly kind: "norm"; readonly weight: string }
  | {
      readonly kind: "attention";
      /** Number of the place where adapters add to its first products (adapters/places.ts); the next is that of the last. */
      readonly place: number;
      readonly input: readonly Share[];
      readonly output: readonly Share[];
    }
  | {
      readonly kind: "feedForward";
      /** Likewise. */
      readonly place: number;
      readonly gate: readonly Share[];
      readonly up: readonly Share[];
      readonly down: readonly Share[];
    };

export interface DividedGraph {
  readonly embedding: readonly Share[];
  readonly layers: readonly (readonly DividedStep[])[];
  readonly output: readonly Share[];
  readonly outputPlace: number;
  /** Of a mixture; none where there is none. */
  readonly classifier: readonly (readonly Share[])[];
}

export function divideGraph({
  graph,
  shape,
  threads,
  mixture,
}: Pick<Blueprint, "graph" | "shape" | "threads" | "mixture">): DividedGraph {
  const unit = headUnit(shape.headLength);
  const whole = (matrix: Matrix) => divide([matrix], rowGrain, threads);
  let places = 0;
  const nextPlace = () => {
    places += 2;
    return places - 2;
  };
  const step = (found: GraphStep): DividedStep => {
    switch (found.kind) {
      case "norm":
        return { kind: "norm", weight: found.weight.name };
      case "attention":
        return {
          kind: "attention",
          place: nextPlace(),
          input: divide([found.query, found.key, found.value], unit, threads),
          output: whole(found.output),
        };
      case "feedForward":
        return {
          kind: "feedForward",
          place: nextPlace(),
          gate: whole(found.gate),
          up: whole(found.up),
          down: whole(found.down),
        };
    }
  };
  const layers = graph.layers.map((layer) => layer.map(step));
  const classifier = mixture?.classifier.map(whole) ?? [];
  return { embedding: whole(graph.embedding), layers, output: whole(graph.output), outputPlace: places, classifier };
}
