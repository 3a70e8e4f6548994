// Row plan of a mixture: the order in which the rows of a step are computed, and which of them need the first pass. All
// do, unless slots keep their weights after some tokens. Rows with kept weights come last, so the others are at the
// start of every pass. The leader asks before each step.
import type { Batch } from "../../batch.ts";

/** State of a slot whose prompt is not complete. */
const inPrompt = -1;

export class RowPlan {
  /** Rows of the batch in order of computation. */
  readonly rows: Int32Array;
  /** MixtureSpec.keptAfter. */
  readonly #keptAfter: number | null;
  /** By slot: single tokens computed after its prompt, up to the first with kept weights. */
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

  /** Whether a row uses its slot's kept weights. */
  hasKept(row: number): boolean {
    return this.#hasKept[row] === 1;
  }

  /** Whether its slot keeps the weights of the row's last token. */
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
    // A model that keeps weights neither copies nor restores slots: their content always begins with a row at 0.
    const before = batch.position[row] === 0 ? inPrompt : (this.#fed[slot] as number);
    // Any row of a prompt may want logits. The prompt is over when a single token follows a row that does.
    const isAlone = before !== inPrompt && batch.length[row] === 1;
    // If a row skipped the first pass, no later row can run it.
    const hasKept = before > keptAfter || (isAlone && before === keptAfter);
    let fed = (batch.logitsCount[row] as number) > 0 ? 0 : inPrompt;
    if (hasKept) fed = keptAfter + 1;
    else if (isAlone) fed = before + 1;
    this.#fed[slot] = fed;
    this.#hasKept[row] = hasKept ? 1 : 0;
    this.#keeps[row] = !hasKept && fed === keptAfter ? 1 : 0;
  }
}
