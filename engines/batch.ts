// Owns the nouns of one forward pass: Batch (what the scheduler asks for) and StepOutput (what an engine answers).
// Both are reused from step to step: nothing here may be kept past the next step.

/**
 * The rows of one forward pass, as parallel arrays. Row r feeds `length[r]` tokens of the sequence in slot `slot[r]`,
 * the first at position `position[r]`; its tokens are `tokens[offset[r] .. offset[r] + length[r])`.
 */
export class Batch {
  readonly slot: Int32Array;
  readonly position: Int32Array;
  readonly offset: Int32Array;
  readonly length: Int32Array;
  /** 1 where the logits after the row's last token are wanted. */
  readonly wantLogits: Uint8Array;
  /** Adapter id of the row, 0 for the base model. */
  readonly adapter: Int32Array;
  readonly tokens: Int32Array;
  rowCount = 0;
  tokenCount = 0;

  constructor(maxRows: number, maxTokens: number) {
    this.slot = new Int32Array(maxRows);
    this.position = new Int32Array(maxRows);
    this.offset = new Int32Array(maxRows);
    this.length = new Int32Array(maxRows);
    this.wantLogits = new Uint8Array(maxRows);
    this.adapter = new Int32Array(maxRows);
    this.tokens = new Int32Array(maxTokens);
  }

  get maxRows(): number {
    return this.slot.length;
  }

  clear(): void {
    this.rowCount = 0;
    this.tokenCount = 0;
  }

  /** Appends a row that feeds `source[from .. to)` at positions from..to of the sequence in `slot`. Returns its index. */
  addRow(slot: number, source: Int32Array, from: number, to: number, wantLogits: boolean, adapter: number): number {
    const row = this.rowCount++;
    this.slot[row] = slot;
    this.position[row] = from;
    this.offset[row] = this.tokenCount;
    this.length[row] = to - from;
    this.wantLogits[row] = wantLogits ? 1 : 0;
    this.adapter[row] = adapter;
    for (let i = from; i < to; i++) this.tokens[this.tokenCount++] = source[i] as number;
    return row;
  }
}

/** Logits of one step. A view into the engine's memory: valid until the next step. */
export interface StepOutput {
  /** `vocabSize` floats for each row that wanted logits. */
  readonly logits: Float32Array;
  /** Index (in rows of `logits`) of batch row r's logits, or -1. As long as the batch has rows. */
  readonly logitsRow: Int32Array;
}
