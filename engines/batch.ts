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
  /** Of how many of the row's last tokens the logits are wanted: 0, 1, or more where a draft is to be verified. */
  readonly logitsCount: Int32Array;
  /** 1 where the pooled hidden states of the row's tokens are wanted, and no logits. */
  readonly wantPooled: Uint8Array;
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
    this.logitsCount = new Int32Array(maxRows);
    this.wantPooled = new Uint8Array(maxRows);
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

  /**
   * Appends a row that feeds `source[from .. to)` at positions from..to of the sequence in `slot`: whatever the slot holds
   * from position `from` on is dropped. Returns its index.
   */
  addRow(slot: number, source: Int32Array, from: number, to: number, logitsCount: number, adapter: number): number {
    const row = this.rowCount++;
    this.slot[row] = slot;
    this.position[row] = from;
    this.offset[row] = this.tokenCount;
    this.length[row] = to - from;
    this.logitsCount[row] = logitsCount;
    this.wantPooled[row] = 0;
    this.adapter[row] = adapter;
    for (let i = from; i < to; i++) this.tokens[this.tokenCount++] = source[i] as number;
    return row;
  }

  /** Lengthens the row added last by drafted tokens whose logits are wanted too. */
  extendRow(draft: Int32Array, count: number): void {
    const row = this.rowCount - 1;
    for (let i = 0; i < count; i++) this.tokens[this.tokenCount++] = draft[i] as number;
    this.length[row] = (this.length[row] as number) + count;
    this.logitsCount[row] = (this.logitsCount[row] as number) + count;
  }
}

/** What one step made. Views into the engine's memory: valid until the next step. */
export interface StepOutput {
  /** `vocabSize` floats for each of the tokens whose logits were wanted. */
  readonly logits: Float32Array;
  /** Index (in rows of `logits`) of the first of batch row r's logits, or -1. As long as the batch has rows. */
  readonly logitsRow: Int32Array;
  /**
   * `pooledLength` floats for each row that wanted a pooled output: of the hidden states behind the last norm, the sum
   * over the row's tokens (mean), the first one (cls), the last one (last); scores (rank).
   */
  readonly pooled: Float32Array;
  /** Index (in rows of `pooled`) of batch row r's output, or -1. */
  readonly pooledRow: Int32Array;
}
