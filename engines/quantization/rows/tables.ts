// Tables: all values of small sources (scales, zero points, lookup tables), read once and kept while there is room.
import type { RowSource } from "../../files/checkpoint/row-source.ts";

export type ReadRows = (source: RowSource, first: number, count: number, out: Float32Array, at: number) => void;

/** Maximum number of floats kept. */
const maxFloats = 2 ** 23;

export class Tables {
  readonly #readRows: ReadRows;
  readonly #kept = new Map<RowSource, Float32Array>();
  #floats = 0;

  constructor(readRows: ReadRows) {
    this.#readRows = readRows;
  }

  /** Returns all values of a source. */
  of(source: RowSource): Float32Array {
    const known = this.#kept.get(source);
    if (known) return known;
    const values = new Float32Array(source.rows * source.columns);
    this.#readRows(source, 0, source.rows, values, 0);
    this.#kept.set(source, values);
    this.#floats += values.length;
    for (const [oldest, { length }] of this.#kept) {
      if (this.#floats <= maxFloats || oldest === source) break;
      this.#kept.delete(oldest);
      this.#floats -= length;
    }
    return values;
  }
}
