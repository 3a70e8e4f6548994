// Layout of an adapter in a compute thread's memory: a table of sites for the kernels, then for each site the thread's
// share of A's rows with their scales, and B's values for its own rows of each matrix. kernels/adapters.ts defines the
// formats. Sizes only; packing.ts fills them. Pure.

import type { AdapterRanks } from "../plan/mixture.ts";
import type { Piece } from "../plan/partition-plan.ts";
import { type AdapterSite, pieceOf, siteMatrices } from "./sites.ts";

/** Ints of a site in the table: share, own rows, scales, A; then B, first rank and ranks of each matrix. */
const headInts = 4;
const matrixInts = 3;
const siteInts = headInts + matrixInts * siteMatrices;
/** Bytes from one site to the next. The kernels identify a site by its byte offset. */
export const siteBytes = siteInts * Int32Array.BYTES_PER_ELEMENT;

/** Rows of A in a tile. */
export const tileRows = 4;
const valueBytes = 2;
const scaleBytes = 4;
const alignment = 64;

export interface MatrixLayout {
  readonly ranks: number;
  /** Its first rank among those of the site. */
  readonly firstRank: number;
  /** Address of B; 0 if the thread has none of the matrix's rows. */
  readonly values: number;
  readonly piece: Piece | undefined;
}

export interface SiteLayout {
  /** Rows of A in one thread's share; 0 if the adapter changes nothing here. */
  readonly share: number;
  /** This thread's rows of them, a multiple of a tile: the last may be padding. */
  readonly ownRows: number;
  readonly scales: number;
  readonly values: number;
  readonly matrices: readonly MatrixLayout[];
}

/** Addresses are relative to the adapter. */
export interface AdapterLayout {
  readonly sites: readonly SiteLayout[];
  readonly bytes: number;
}

/** Rows of A that each thread computes; the last threads may have fewer. */
export function rankShare(ranks: number, threads: number): number {
  return Math.ceil(ranks / threads / tileRows) * tileRows;
}

export function layOutAdapter(
  sites: readonly AdapterSite[],
  ranks: AdapterRanks,
  thread: number,
  threads: number,
): AdapterLayout {
  let used = align(sites.length * siteBytes);
  const take = (bytes: number) => {
    const at = used;
    used += align(bytes);
    return at;
  };
  const layouts = sites.map((site, number): SiteLayout => {
    const own = ranks[number] ?? [];
    const total = own.reduce((sum, rank) => sum + rank, 0);
    const share = rankShare(total, threads);
    const ownRows = Math.min(Math.max(rankShare(total, 1) - thread * share, 0), share);
    let firstRank = 0;
    const scales = take(ownRows * scaleBytes);
    const values = take(ownRows * site.columns * valueBytes);
    const matrices = site.matrices.map((_, matrix): MatrixLayout => {
      const rank = own[matrix] ?? 0;
      const piece = pieceOf(site, matrix, thread);
      const at = rank > 0 && piece ? take(piece.padded * rank * valueBytes) : 0;
      firstRank += rank;
      return { ranks: rank, firstRank: firstRank - rank, values: at, piece };
    });
    return { share, ownRows, scales, values, matrices };
  });
  return { sites: layouts, bytes: used };
}

/**
 * Bytes an adapter takes in every thread's memory: the maximum over the threads, so that addresses are the same in all.
 */
export function adapterBytes(sites: readonly AdapterSite[], ranks: AdapterRanks, threads: number): number {
  const bytes = Array.from({ length: threads }, (_, thread) => layOutAdapter(sites, ranks, thread, threads).bytes);
  return Math.max(...bytes);
}

/** Writes the site table of an adapter at `address`. */
export function writeTable({ sites }: AdapterLayout, table: Int32Array, address: number): void {
  for (const [number, site] of sites.entries()) {
    const matrices = site.matrices.flatMap(({ values, firstRank, ranks, piece }) => [
      address + values,
      firstRank,
      piece ? ranks : 0,
    ]);
    const entry = [site.share, site.ownRows, address + site.scales, address + site.values, ...matrices];
    table.set(entry, number * siteInts);
  }
}

function align(bytes: number): number {
  return Math.ceil(bytes / alignment) * alignment;
}
