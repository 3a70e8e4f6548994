// Embedding tables of an encoder: adds the row of each token's position and the row of token type 0 to its embedding,
// and norms the sum. Every compute thread does so for itself, at the start of a pass.

import type { Norm } from "../graph/graph-tensors.ts";
import type { DividedGraph, Share } from "../plan/partition-plan.ts";
import { type PassDescriptor, rowField } from "../plan/pass-descriptor.ts";
import type { StepParts } from "./step-runner.ts";

const floatBytes = 4;

export interface EmbeddingTableParts extends Pick<StepParts, "blueprint" | "kernels" | "norms" | "at"> {
  readonly order: PassDescriptor;
  readonly tables: Pick<DividedGraph, "positions" | "tokenType">;
  readonly norm: Norm;
}

export class EmbeddingTables {
  readonly #parts: EmbeddingTableParts;

  constructor(parts: EmbeddingTableParts) {
    this.#parts = parts;
  }

  /** Adds to the hidden states of the pass's n tokens. */
  add(n: number): void {
    const { blueprint, kernels, norms, at, tables, norm } = this.#parts;
    const { width } = blueprint.shape;
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
    const { blueprint, at, order } = this.#parts;
    const rowBytes = blueprint.shape.width * floatBytes;
    for (let row = 0; row < order.rowCount; row++) {
      const firstToken = order.row(row, rowField.firstToken);
      const firstPosition = order.row(row, rowField.firstPosition);
      for (let i = 0; i < order.row(row, rowField.length); i++) {
        this.#readRow(table, firstPosition + i, at.input + (firstToken + i) * rowBytes);
      }
    }
  }

  #readRow({ pieces: [piece] }: Share, row: number, out: number): void {
    if (!piece) return;
    const { blueprint, kernels, at } = this.#parts;
    const { name, tensor } = piece.matrix;
    kernels.readRow(tensor.type, at.weights.get(name) as number, row, piece.padded, blueprint.shape.width, out);
  }
}
