// Embedding tables of an encoder. Two table rows are added to each token's embedding: the row of the token's position,
// and the row of token type 0. The sum is then normed. Every compute thread computes these sums for all tokens, at the
// start of a pass.

import type { Norm } from "../graph/graph-tensors.ts";
import { axisCount } from "../graph/ropes.ts";
import type { DividedGraph, Share } from "../plan/partition-plan.ts";
import { type PassDescriptor, rowField } from "../plan/pass-descriptor.ts";
import type { StepParts } from "./step-runner.ts";

const floatBytes = 4;
/** Offsets in rows and columns of the four positions around a patch. */
const corners = [
  [0, 0],
  [0, 1],
  [1, 0],
  [1, 1],
] as const;

export interface EmbeddingTableParts extends Pick<StepParts, "plan" | "kernels" | "norms" | "at"> {
  readonly pass: PassDescriptor;
  readonly tables: Pick<DividedGraph, "positions" | "rowPositions" | "tokenType">;
  readonly norm: Norm | null;
  /** View of the thread's memory. */
  readonly floats: Float32Array;
}

export class EmbeddingTables {
  readonly #parts: EmbeddingTableParts;

  constructor(parts: EmbeddingTableParts) {
    this.#parts = parts;
  }

  /**
   * Adds the table rows to the hidden states of the pass's n tokens, and norms the sums if the model has an embedding
   * norm.
   */
  add(n: number): void {
    const { plan, kernels, norms, at, tables, norm } = this.#parts;
    const { width } = plan.shape;
    const { hidden, input } = at;
    if (tables.positions) {
      this.#readPositions(tables.positions);
      kernels.addRows(input, width, hidden, width, n, width);
    }
    if (tables.tokenType) {
      this.#readRow(tables.tokenType, 0, input);
      kernels.addVector(hidden, width, n, input, width);
    }
    norms.run(norm, hidden, hidden, n);
  }

  #readPositions(table: Share): void {
    const { plan, at, pass } = this.#parts;
    const rowBytes = plan.shape.width * floatBytes;
    const positionTable = plan.graph.vision?.positionTable ?? null;
    if (positionTable?.lookup === "linear") {
      this.#interpolatePositions(table, positionTable.side);
      return;
    }
    if (positionTable?.lookup === "sum") {
      this.#sumPositions(table);
      return;
    }
    for (let row = 0; row < pass.rowCount; row++) {
      const firstToken = pass.row(row, rowField.firstToken);
      const firstPosition = pass.row(row, rowField.firstPosition);
      for (let i = 0; i < pass.row(row, rowField.length); i++) {
        const position = positionTable === null ? firstPosition + i : this.#bucketOf(i, positionTable.side);
        this.#readRow(table, position, at.input + (firstToken + i) * rowBytes);
      }
    }
  }

  /**
   * Returns the row of the position table for a patch. The table has `buckets` x `buckets` positions, over which the
   * patches of a tile of any size are spread evenly.
   */
  #bucketOf(patch: number, buckets: number): number {
    const { patchColumns, tokenCount } = this.#parts.pass;
    const spread = (index: number, count: number) => Math.floor((buckets * index) / count);
    const row = spread(Math.floor(patch / patchColumns), tokenCount / patchColumns);
    return row * buckets + spread(patch % patchColumns, patchColumns);
  }

  /**
   * Writes for each patch the bilinear interpolation of the four nearest rows of a square position table of `side` x `side` rows. The
   * coordinates of the patches are those of their rope.
   */
  #interpolatePositions(table: Share, side: number): void {
    const { plan, at, pass, floats } = this.#parts;
    const { width } = plan.shape;
    const { coordinates, patchColumns, tokenCount } = pass;
    const along = (index: number, count: number) => {
      const place = count > 1 ? (index * (side - 1)) / (count - 1) : 0;
      const low = Math.min(Math.floor(place), side - 2);
      return { low, share: place - low };
    };
    for (let patch = 0; patch < tokenCount; patch++) {
      const row = along(coordinates[patch * axisCount + 1] as number, tokenCount / patchColumns);
      const column = along(coordinates[patch * axisCount + 2] as number, patchColumns);
      const to = (at.input >>> 2) + patch * width;
      floats.fill(0, to, to + width);
      for (const [down, right] of corners) {
        const share = (down ? row.share : 1 - row.share) * (right ? column.share : 1 - column.share);
        if (share === 0) continue;
        this.#readRow(table, (row.low + down) * side + column.low + right, at.joined);
        const from = at.joined >>> 2;
        for (let i = 0; i < width; i++)
          floats[to + i] = (floats[to + i] as number) + share * (floats[from + i] as number);
      }
    }
  }

  /** Writes the sum of the positions of each patch's column and row. */
  #sumPositions(columns: Share): void {
    const { plan, kernels, at, pass, tables } = this.#parts;
    const { width } = plan.shape;
    for (let patch = 0; patch < pass.tokenCount; patch++) {
      const to = at.input + patch * width * floatBytes;
      this.#readRow(columns, patch % pass.patchColumns, to);
      this.#readRow(tables.rowPositions, Math.floor(patch / pass.patchColumns), at.joined);
      kernels.addRows(at.joined, width, to, width, 1, width);
    }
  }

  #readRow(table: Share | null, row: number, out: number): void {
    const piece = table?.pieces[0];
    if (!piece) return;
    const { plan, kernels, at } = this.#parts;
    const { name, tensor } = piece.matrix;
    kernels.readRow(tensor.type, at.weights.get(name) as number, row, piece.padded, plan.shape.width, out);
  }
}
