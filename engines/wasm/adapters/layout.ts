// Owns how an adapter lies in a compute thread's memory: a table of places that the kernels look things up in, then for each
// place the thread's share of A's rows with their scales, and B's values for its own rows of each matrix.
// kernels/adapters.ts draws what the numbers mean. Sizes only; packing.ts fills them. Pure.

import type { AdapterRanks } from "../plan/mixture.ts";
import type { Piece } from "../plan/partition-plan.ts";
import { type AdapterPlace, pieceOf, placeMatrices } from "./places.ts";

/** Ints of a place in the table: share, own rows, scales, A; then B, first rank and ranks of each matrix. */
const headInts = 4;
const matrixInts = 3;
const placeInts = headInts + matrixInts * placeMatrices;
/** From one place to the next; what the kernels call a place is where it begins. */
export const placeBytes = placeInts * Int32Array.BYTES_PER_ELEMENT;

/** Rows of A in a tile. */
export const tileRows = 4;
const valueBytes = 2;
const scaleBytes = 4;
const alignment = 64;

export interface MatrixLayout {
  readonly ranks: number;
  /** Among the place's ranks. */
  readonly firstRank: number;
  /** Where B begins; 0 where the thread has none of the matrix's rows. */
  readonly values: number;
  readonly piece: Piece | undefined;
}

export interface PlaceLayout {
  /** Rows of A that a thread computes; 0 where the adapter adds nothing here. */
  readonly share: number;
  /** Of them this thread's, a multiple of a tile: the last may be padding. */
  readonly ownRows: number;
  readonly scales: number;
  readonly values: number;
  readonly matrices: readonly MatrixLayout[];
}

/** Addresses count from where the adapter begins. */
export interface AdapterLayout {
  readonly places: readonly PlaceLayout[];
  readonly bytes: number;
}

/** Rows of A that each thread but the last ones computes. */
export function rankShare(ranks: number, threads: number): number {
  return Math.ceil(ranks / threads / tileRows) * tileRows;
}

export function layOutAdapter(
  places: readonly AdapterPlace[],
  ranks: AdapterRanks,
  thread: number,
  threads: number,
): AdapterLayout {
  let used = align(places.length * placeBytes);
  const take = (bytes: number) => {
    const at = used;
    used += align(bytes);
    return at;
  };
  const layouts = places.map((place, number): PlaceLayout => {
    const own = ranks[number] ?? [];
    const total = own.reduce((sum, rank) => sum + rank, 0);
    const share = rankShare(total, threads);
    const ownRows = Math.min(Math.max(rankShare(total, 1) - thread * share, 0), share);
    let firstRank = 0;
    const scales = take(ownRows * scaleBytes);
    const values = take(ownRows * place.columns * valueBytes);
    const matrices = place.matrices.map((_, matrix): MatrixLayout => {
      const rank = own[matrix] ?? 0;
      const piece = pieceOf(place, matrix, thread);
      const at = rank > 0 && piece ? take(piece.padded * rank * valueBytes) : 0;
      firstRank += rank;
      return { ranks: rank, firstRank: firstRank - rank, values: at, piece };
    });
    return { share, ownRows, scales, values, matrices };
  });
  return { places: layouts, bytes: used };
}

/** Bytes an adapter takes in every thread's memory: as many as where it takes most, so that it lies alike in all. */
export function adapterBytes(places: readonly AdapterPlace[], ranks: AdapterRanks, threads: number): number {
  const bytes = Array.from({ length: threads }, (_, thread) => layOutAdapter(places, ranks, thread, threads).bytes);
  return Math.max(...bytes);
}

/** Writes the table of places of an adapter that begins at `address`. */
export function writeTable({ places }: AdapterLayout, table: Int32Array, address: number): void {
  for (const [number, place] of places.entries()) {
    const matrices = place.matrices.flatMap(({ values, firstRank, ranks, piece }) => [
      address + values,
      firstRank,
      piece ? ranks : 0,
    ]);
    const entry = [place.share, place.ownRows, address + place.scales, address + place.values, ...matrices];
    table.set(entry, number * placeInts);
  }
}

function align(bytes: number): number {
  return Math.ceil(bytes / alignment) * alignment;
}
