// Adapter sites: the places in a pass where LoRA adapters can change matrix products. Matrices with the same input form one
// site, because one product multiplies this input by the A matrices of all their adapters. All threads compute the same
// sites in the same order.

import type { Matrix } from "../graph/graph-tensors.ts";
import type { DividedGraph, DividedStep, Piece, Share } from "../plan/partition-plan.ts";

/** Maximum number of matrices in a site: queries, keys and values. */
export const siteMatrices = 3;

export interface AdapterSite {
  readonly matrices: readonly Matrix[];
  /** Number of floats in an input row. */
  readonly columns: number;
  /** Each thread's rows of the matrices, indexed by matrix, then by thread. */
  readonly shares: readonly (readonly Share[])[];
}

/**
 * Returns the sites in the order of their numbers; the output matrix is the last site. If the embedding is also the
 * output matrix, no adapter applies to it, because the adapter would change the embedding too.
 */
export function adapterSites({ layers, embedding, output }: DividedGraph): AdapterSite[] {
  const last = site([output]);
  const isTied = last.matrices[0]?.name === site([embedding]).matrices[0]?.name;
  return [...layers.flat().flatMap(sitesOf), isTied ? { ...last, matrices: [], shares: [] } : last];
}

/** Returns the rows that one thread computes of matrix number `matrix` of a site; undefined if it computes none of them. */
export function pieceOf({ matrices, shares }: AdapterSite, matrix: number, thread: number): Piece | undefined {
  return shares[matrix]?.[thread]?.pieces.find((piece) => piece.matrix === matrices[matrix]);
}

function sitesOf(step: DividedStep): AdapterSite[] {
  switch (step.kind) {
    case "norm":
    case "hiddenNorm":
    case "experts":
    case "relativeAttention":
    case "convolutionModule":
      return [];
    case "attention":
      return [site([step.input]), site([step.output])];
    case "feedForward":
      return [site(step.gate ? [step.gate, step.up] : [step.up]), site([step.down])];
  }
}

/**
 * Creates a site from matrices with the same input. One element of `divided` may contain several matrices: queries,
 * keys and values.
 */
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
