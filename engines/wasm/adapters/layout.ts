// Adapter layout: the layout of an adapter in a compute thread's memory. An adapter starts with a table of sites for
// the kernels. After the table, each site has two parts: the thread's share of A's rows with their scales, and B's
// values for the thread's own rows of each matrix. kernels/adapters.ts defines the formats. This file only computes
// sizes and addresses; packing.ts fills the memory.

import type { AdapterRanks } from "../plan/mixture.ts";
import type { Piece } from "../plan/partition-plan.ts";
import { type AdapterSite, pieceOf, siteMatrices } from "./sites.ts";

/**
 * Numbers of 32-bit integers in a site's entry of the table. The entry begins with `headInts` integers: number of rows
 * of A per thread (share), number of this thread's rows, address of the scales, address of A. `matrixInts` integers
 * follow for each matrix: address of B, index of its first rank, number of its ranks.
 */
const headInts = 4;
const matrixInts = 3;
const siteInts = headInts + matrixInts * siteMatrices;
/**
 * Number of bytes of the table's entry for a site (a group of matrices with the same input). The kernels identify a site
 * by the byte offset of its entry.
 */
export const siteBytes = siteInts * Int32Array.BYTES_PER_ELEMENT;

/** Number of rows in a tile of the LoRA matrix A. Rows of a tile are stored interleaved (kernels/adapters.ts). */
export const tileRows = 4;
const valueBytes = 2;
const scaleBytes = 4;
const alignment = 64;

export interface MatrixLayout {
  readonly ranks: number;
  /** Index of the matrix's first rank (row of A and column of B) among the ranks of all matrices of the site. */
  readonly firstRank: number;
  /**
   * Address of B's values; 0 if the adapter does not change the matrix, or if this thread computes no rows of the
   * matrix.
   */
  readonly values: number;
  readonly piece: Piece | undefined;
}

export interface SiteLayout {
  /**
   * Number of rows of the LoRA matrix A that each thread multiplies; 0 if the adapter changes no matrix of this site (a
   * group of matrices with the same input).
   */
  readonly share: number;
  /** Number of rows of the LoRA matrix A that this thread multiplies, a multiple of 4. The last rows may be padding. */
  readonly ownRows: number;
  readonly scales: number;
  readonly values: number;
  readonly matrices: readonly MatrixLayout[];
}

/** Layout of an adapter in one thread's memory. Addresses are relative to the adapter's address. */
export interface AdapterLayout {
  readonly sites: readonly SiteLayout[];
  readonly bytes: number;
}

/** Returns the number of rows of the LoRA matrix A that each thread multiplies. The last threads may have fewer rows. */
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
 * Returns the bytes that an adapter occupies in every thread's memory. This is the maximum over the threads, so that
 * the adapter has the same address in all memories.
 */
export function adapterBytes(sites: readonly AdapterSite[], ranks: AdapterRanks, threads: number): number {
  const bytes = Array.from({ length: threads }, (_, thread) => layOutAdapter(sites, ranks, thread, threads).bytes);
  return Math.max(...bytes);
}

/** Writes the site table of an adapter whose address is `address`. */
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
