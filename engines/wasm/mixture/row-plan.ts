// Owns in which order the rows of a step are computed, and which of them go through a mixture's first pass: all of them, unless
// slots keep their weights after some tokens. Those that have kept theirs come last, so that the others are the beginning of
// every pass. The leader asks before each step.
import type { Batch } from "../../batch.ts";

/** Of a slot whose prompt has not been fed whole. */
const inPrompt = -1;

export class RowPlan {
  /** Rows of the batch in the order they are computed. */
  readonly rows: Int32Array;
  /** MixtureSpec.keptAfter. */
  readonly #keptAfter: number | null;
  /** By slot: tokens fed one by one behind its prompt, up to the first that had kept weights. */
  readonly #fed: Int32Array;
  /** By row of the batch. */
  readonly #hasKept: Uint8Array;
  readonly #keeps: Uint8Array;

  constructor(maxSequences: number, keptAfter: number | null) {
    this.rows = Int32Array.from({ length: maxSequences }, (_, row) => row);
    this.#keptAfter = keptAfter;
    this.#fed = new Int32Array(maxSequences).fill(inPrompt);
    this.#hasKept = new Uint8Array(maxSequences);
    this.#keeps = new Uint8Array(maxSequences);
  }

  /** Whether a row has the weights its slot has kept. */
  hasKept(row: number): boolean {
    return this.#hasKept[row] === 1;
  }

  /** Whether its slot is to keep the weights of its last token. */
  keeps(row: number): boolean {
    return this.#keeps[row] === 1;
  }

  begin(batch: Batch): void {
    if (this.#keptAfter === null) return;
    for (let row = 0; row < batch.rowCount; row++) this.#feed(batch, row, this.#keptAfter);
    let turn = 0;
    for (let row = 0; row < batch.rowCount; row++) if (!this.hasKept(row)) this.rows[turn++] = row;
    for (let row = 0; row < batch.rowCount; row++) if (this.hasKept(row)) this.rows[turn++] = row;
  }

  #feed(batch: Batch, row: number, keptAfter: number): void {
    const slot = batch.slot[row] as number;
    // A model that keeps weights neither copies nor restores: what a slot holds begins with a row at 0.
    const before = batch.position[row] === 0 ? inPrompt : (this.#fed[slot] as number);
    // Every row of a prompt may want logits: it is over when a single token comes behind one that does.
    const isAlone = before !== inPrompt && batch.length[row] === 1;
    // Once a row was spared the first pass, those behind it cannot be put through it.
    const hasKept = before > keptAfter || (isAlone && before === keptAfter);
    let fed = (batch.logitsCount[row] as number) > 0 ? 0 : inPrompt;
    if (hasKept) fed = keptAfter + 1;
    else if (isAlone) fed = before + 1;
    this.#fed[slot] = fed;
    this.#hasKept[row] = hasKept ? 1 : 0;
    this.#keeps[row] = !hasKept && fed === keptAfter ? 1 : 0;
  }
}
