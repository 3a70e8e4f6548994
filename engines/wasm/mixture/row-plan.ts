// Row plan of an X-LoRA mixture: the order in which the rows (parts of sequences) of a step are computed. A row needs
// two passes; the first pass computes the adapter weights. If the mixture lets a slot (a running sequence) keep its
// adapter weights after some number of tokens, later rows of the slot skip the first pass. They are computed last, so the
// rows that need the first pass are at the start of every pass. The model calls begin() before each step.
import type { Batch } from "../../batch.ts";

/** Value of #fed for a slot whose prompt has not been computed completely. */
const inPrompt = -1;

export class RowPlan {
  /** Row numbers of the batch, in order of computation. */
  readonly rows: Int32Array;
  /** Number of decoded tokens after which a sequence keeps its weights; see MixtureSpec.keptAfter. */
  readonly #keptAfter: number | null;
  /**
   * For each slot: number of one-token rows computed after its prompt. Counting stops at the first row with kept
   * weights.
   */
  readonly #fed: Int32Array;
  /** For each row of the batch: 1 if hasKept() is true. `#keeps` stores the values of keeps() in the same way. */
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

  /** Whether the row's slot keeps the adapter weights of the row's last token. */
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
    // Position 0 is always the start of a new sequence, because a model that keeps weights neither copies nor restores
    // slots.
    const before = batch.position[row] === 0 ? inPrompt : (this.#fed[slot] as number);
    // Any row of a prompt may want logits, so a row that wants logits need not be the last row of the prompt. The
    // prompt is complete when a row with a single token follows a row that wants logits.
    const isAlone = before !== inPrompt && batch.length[row] === 1;
    // After a row has skipped the first pass, the KV of the first pass has a gap. No later row of the slot can run the
    // first pass, so all later rows use the kept weights.
    const hasKept = before > keptAfter || (isAlone && before === keptAfter);
    let fed = (batch.logitsCount[row] as number) > 0 ? 0 : inPrompt;
    if (hasKept) fed = keptAfter + 1;
    else if (isAlone) fed = before + 1;
    this.#fed[slot] = fed;
    this.#hasKept[row] = hasKept ? 1 : 0;
    this.#keeps[row] = !hasKept && fed === keptAfter ? 1 : 0;
  }
}
