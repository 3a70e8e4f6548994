// Owns one compute thread's products: its rows of a matrix times the inputs of a pass, and bringing together what all threads
// have computed of them. Used by compute-thread.ts and what runs in its passes.
import type { Share } from "./blueprint.ts";
import type { Exchange } from "./exchange.ts";
import type { KernelExports } from "./kernel-exports.ts";
import type { ThreadMemory } from "./thread-memory.ts";

const floatBytes = 4;

export class ThreadProducts {
  /** Where this thread puts what the others are to get. */
  readonly ownSlab: number;
  readonly #index: number;
  readonly #kernels: KernelExports;
  readonly #at: ThreadMemory;
  readonly #exchange: Exchange;

  constructor(index: number, kernels: KernelExports, at: ThreadMemory, exchange: Exchange) {
    this.ownSlab = at.slabs + index * at.slabBytes;
    this.#index = index;
    this.#kernels = kernels;
    this.#at = at;
    this.#exchange = exchange;
  }

  own(shares: readonly Share[]): Share {
    return shares[this.#index] as Share;
  }

  /**
   * n rows of `columns` floats at x times this thread's pieces: rows of share.stride floats at `out`. `preparedFor` is the
   * type that x has been prepared for already, -1 = none. Returns the one it is prepared for now.
   */
  multiply({ pieces, stride }: Share, x: number, columns: number, n: number, out: number, preparedFor = -1): number {
    const { prepared, weights } = this.#at;
    let current = preparedFor;
    for (const { matrix, padded, slabColumn } of pieces) {
      const { type, name } = matrix.tensor;
      if (type !== current) this.#kernels.prepare(type, x, columns, n, columns, prepared);
      current = type;
      const y = out + slabColumn * floatBytes;
      this.#kernels.multiply(type, weights.get(name) as number, padded, columns, prepared, n, y, stride);
    }
    return current;
  }

  /** Gives the others the first n rows of this thread's slab and takes theirs. */
  exchange(shares: readonly Share[], n: number): void {
    this.#exchange.slabs((thread) => n * (shares[thread] as Share).stride * floatBytes);
  }

  /** Puts the slabs of all threads side by side: n whole rows. */
  join(shares: readonly Share[], n: number): void {
    const width = shares.reduce((sum, { pieces }) => sum + pieces.reduce((rows, piece) => rows + piece.rows, 0), 0);
    shares.forEach(({ pieces, stride }, thread) => {
      const slab = this.#at.slabs + thread * this.#at.slabBytes;
      for (const { rows, slabColumn, column } of pieces) {
        const to = this.#at.joined + column * floatBytes;
        this.#kernels.copyRows(slab + slabColumn * floatBytes, stride, to, width, n, rows);
      }
    });
  }

  /** Exchanges the slabs and adds all of them to the hidden state, rows of `width` floats. */
  addToHidden(shares: readonly Share[], n: number, width: number): void {
    this.exchange(shares, n);
    shares.forEach(({ pieces, stride }, thread) => {
      const slab = this.#at.slabs + thread * this.#at.slabBytes;
      for (const { rows, slabColumn, column } of pieces) {
        const to = this.#at.hidden + column * floatBytes;
        this.#kernels.addRows(slab + slabColumn * floatBytes, stride, to, width, n, rows);
      }
    });
  }
}
