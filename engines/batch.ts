// Batch and StepOutput: input and output of one forward pass. Both are reused by every step, so callers must not keep
// references to their arrays beyond the next step.

/**
 * Rows of one forward pass, as parallel arrays. Row r feeds `length[r]` tokens of the sequence in slot `slot[r]`, the
 * first at position `position[r]`; its tokens are `tokens[offset[r] .. offset[r] + length[r])`.
 */
export class Batch {
  readonly slot: Int32Array;
  readonly position: Int32Array;
  readonly offset: Int32Array;
  readonly length: Int32Array;
  /** Logits are computed for this many tokens at the end of the row: 0, 1, or more to verify a draft. */
  readonly logitsCount: Int32Array;
  /** 1: the row needs the pooled hidden states of its tokens, and no logits. */
  readonly wantPooled: Uint8Array;
  /** Adapter id of the row; 0: the base model. */
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
   * Appends a row that feeds `source[from .. to)` to the sequence in `slot`, at positions from .. to - 1. Returns the
   * row's index. The step first drops the tokens that the slot holds from position `from` on.
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

  /** Appends drafted tokens to the last row and requests logits for each of them. */
  extendRow(draft: Int32Array, count: number): void {
    const row = this.rowCount - 1;
    for (let i = 0; i < count; i++) this.tokens[this.tokenCount++] = draft[i] as number;
    this.length[row] = (this.length[row] as number) + count;
    this.logitsCount[row] = (this.logitsCount[row] as number) + count;
  }
}

/** Output of one step: views of the engine's memory, valid until the next step. */
export interface StepOutput {
  /** Shape [row][vocabSize]: one row per token with logits. */
  readonly logits: Float32Array;
  /** For each batch row: its first row in `logits`; -1 if it has none. */
  readonly logitsRow: Int32Array;
  /**
   * Shape [row][pooledLength]: one row per pooled output, computed from the hidden states after the output norm.
   * Content by pooling method:
   * - mean: sum over the row's tokens, not divided by their number
   * - cls: state of the first token
   * - last: state of the last token
   * - rank: outputs of the model's scoring head
   */
  readonly pooled: Float32Array;
  /** For each batch row: its row in `pooled`; -1 if it has none. */
  readonly pooledRow: Int32Array;
}
