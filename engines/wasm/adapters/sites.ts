// Adapter sites: where LoRA adapters change a pass, namely at the products of the graph's matrices. Matrices with the
// same input form one site, because their adapters' A are computed together. Pure: all threads derive the same sites in
// the same order.

import type { Matrix } from "../graph/graph-tensors.ts";
import type { DividedGraph, DividedStep, Piece, Share } from "../plan/partition-plan.ts";

/** Most matrices of a site: queries, keys and values. */
export const siteMatrices = 3;

export interface AdapterSite {
  readonly matrices: readonly Matrix[];
  /** Floats of an input. */
  readonly columns: number;
  /** By matrix, then by thread. */
  readonly shares: readonly (readonly Share[])[];
}

/**
 * The sites by number; the output is the last. If the embedding serves as output, no adapter applies there, because it
 * would change the embedding too.
 */
export function adapterSites({ layers, embedding, output }: DividedGraph): AdapterSite[] {
  const last = site([output]);
  const isTied = last.matrices[0]?.name === site([embedding]).matrices[0]?.name;
  return [...layers.flat().flatMap(sitesOf), isTied ? { ...last, matrices: [], shares: [] } : last];
}

/** One thread's piece of matrix number `matrix` of a site; undefined if it has none. */
export function pieceOf({ matrices, shares }: AdapterSite, matrix: number, thread: number): Piece | undefined {
  return shares[matrix]?.[thread]?.pieces.find((piece) => piece.matrix === matrices[matrix]);
}

function sitesOf(step: DividedStep): AdapterSite[] {
  switch (step.kind) {
    case "norm":
    case "hiddenNorm":
    case "experts":
      return [];
    case "attention":
      return [site([step.input]), site([step.output])];
    case "feedForward":
      return [site(step.gate ? [step.gate, step.up] : [step.up]), site([step.down])];
  }
}

/** The site of products that are divided separately, or together. */
function site(divided: readonly (readonly Share[])[]): AdapterSite {
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
