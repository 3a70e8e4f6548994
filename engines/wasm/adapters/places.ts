// Owns where LoRA adapters add to a pass: at the products of the graph's matrices. Matrices that share their input are one
// place, because their adapters' A are computed as one. Pure: all threads work out the same places in the same order.

import type { Matrix } from "../graph/graph-tensors.ts";
import type { DividedGraph, DividedStep, Piece, Share } from "../plan/partition-plan.ts";

/** Most matrices of a place: queries, keys and values. */
export const placeMatrices = 3;

export interface AdapterPlace {
  readonly matrices: readonly Matrix[];
  /** Floats of an input. */
  readonly columns: number;
  /** By matrix, then by thread. */
  readonly shares: readonly (readonly Share[])[];
}

/**
 * The places in the order of their numbers. The output's is the last; where the embedding serves as output no adapter adds
 * there, because it would change the embedding too.
 */
export function adapterPlaces({ layers, embedding, output }: DividedGraph): AdapterPlace[] {
  const last = place([output]);
  const isTied = last.matrices[0]?.name === place([embedding]).matrices[0]?.name;
  return [...layers.flat().flatMap(placesOf), isTied ? { ...last, matrices: [], shares: [] } : last];
}

/** What one thread computes of matrix number `matrix` of a place; undefined where that is nothing. */
export function pieceOf({ matrices, shares }: AdapterPlace, matrix: number, thread: number): Piece | undefined {
  return shares[matrix]?.[thread]?.pieces.find((piece) => piece.matrix === matrices[matrix]);
}

function placesOf(step: DividedStep): AdapterPlace[] {
  switch (step.kind) {
    case "norm":
    case "settle":
    case "experts":
      return [];
    case "attention":
      return [place([step.input]), place([step.output])];
    case "feedForward":
      return [place(step.gate ? [step.gate, step.up] : [step.up]), place([step.down])];
  }
}

/** The place of products that are divided separately, or together. */
function place(divided: readonly (readonly Share[])[]): AdapterPlace {
  const found = divided.flatMap((shares) =>
    [...new Set(shares.flatMap(({ pieces }) => pieces.map(({ matrix }) => matrix)))].map((matrix) => ({
      matrix,
      shares,
    })),
  );
  const [first] = found;
  return {
    matrices: found.map(({ matrix }) => matrix),
    columns: first?.matrix.columns ?? 0,
    shares: found.map(({ shares }) => shares),
  };
}
