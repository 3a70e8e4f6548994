// Batch and StepOutput: input and output of one forward pass. Both are reused by every step, so callers must not keep
// references to their arrays beyond the next step.

/**
 * Part of a prompt that consists of embeddings instead of tokens: one tile of an image, or audio. In the prompt, its
 * positions `from` to `to` (exclusive) have placeholder tokens: negative numbers derived from a digest of the file
 * and the tile, so that equal placeholders mean equal embeddings.
 */
export interface PromptSpan {
  readonly from: number;
  readonly to: number;
  /** Embeddings, shape [to - from][inputLength of the model's card]. */
  readonly embeddings: Float32Array;
  /** true: the positions of the span attend to each other in both directions, so one step must compute all of them. */
  readonly attendsAhead: boolean;
  /**
   * M-RoPE: rows and columns of the embeddings. The time coordinate of each embedding is the position of the span.
   * Its other two coordinates are this position plus its row, and this position plus its column. The position of the
   * token after the span is larger by the longer side of the grid. Null: each embedding has the next position, like a
   * token.
   */
  readonly grid: { readonly rows: number; readonly columns: number } | null;
}

/** Part of a batch row that consists of embeddings instead of tokens. */
export interface EmbeddedPart {
  readonly row: number;
  /** First token of the part, counted from the row's first token. */
  readonly first: number;
  readonly length: number;
  /** Embeddings of the part, shape [length][inputLength of the model's card]. */
  readonly embeddings: Float32Array;
  readonly attendsAhead: boolean;
  /** M-RoPE: coordinates of the part; null: the part has consecutive positions, like tokens. */
  readonly span: GridSpan | null;
}

/** M-RoPE: coordinates of a part of an image. The embeddings of the image, which is a PromptSpan, form a grid. */
interface GridSpan {
  readonly columns: number;
  /** Index of the part's first embedding among the embeddings of the image. */
  readonly first: number;
  /** Position of the image, which is the time coordinate of all its embeddings. */
  readonly time: number;
  /** Number of embeddings of the image minus the number of positions that it takes. */
  readonly saved: number;
}

/**
 * Rows of one forward pass, as parallel arrays. Row r feeds `length[r]` tokens of the sequence in slot `slot[r]`, the
 * first at position `position[r]`; its tokens are `tokens[offset[r] .. offset[r] + length[r])`.
 */
export class Batch {
  readonly slot: Int32Array;
  readonly position: Int32Array;
  /**
   * M-RoPE: number of embeddings of all images before the row, minus the number of positions that these images
   * take.
   */
  readonly saved: Int32Array;
  readonly offset: Int32Array;
  readonly length: Int32Array;
  /** Logits are computed for this many tokens at the end of the row: 0, 1, or more to verify a draft. */
  readonly logitsCount: Int32Array;
  /** 1: the row needs the pooled hidden states of its tokens, and no logits. */
  readonly wantPooled: Uint8Array;
  /** Adapter id of the row; 0: the base model. */
  readonly adapter: Int32Array;
  readonly tokens: Int32Array;
  /** Parts of rows that are embeddings, in the order of rows and positions. Their tokens are negative placeholders. */
  readonly embedded: EmbeddedPart[] = [];
  rowCount = 0;
  tokenCount = 0;

  constructor(maxRows: number, maxTokens: number) {
    this.slot = new Int32Array(maxRows);
    this.position = new Int32Array(maxRows);
    this.saved = new Int32Array(maxRows);
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
    this.embedded.length = 0;
  }

  /**
   * Appends a row that feeds `source[from .. to)` to the sequence in `slot`, at positions from .. to - 1. Returns the
   * row's index. The step first drops the tokens that the slot holds from position `from` on.
   */
  addRow(slot: number, source: Int32Array, from: number, to: number, logitsCount: number, adapter: number): number {
    const row = this.rowCount++;
    this.slot[row] = slot;
    this.position[row] = from;
    this.saved[row] = 0;
    this.offset[row] = this.tokenCount;
    this.length[row] = to - from;
    this.logitsCount[row] = logitsCount;
    this.wantPooled[row] = 0;
    this.adapter[row] = adapter;
    for (let i = from; i < to; i++) this.tokens[this.tokenCount++] = source[i] as number;
    return row;
  }

  /** Adds the embeddings of the last row's positions that are in one of `spans`. */
  embed(spans: readonly PromptSpan[]): void {
    const row = this.rowCount - 1;
    const position = this.position[row] as number;
    const end = position + (this.length[row] as number);
    let saved = 0;
    for (const { from, to, embeddings, attendsAhead, grid } of spans) {
      const savedBefore = saved;
      if (grid !== null) saved += to - from - Math.max(grid.rows, grid.columns);
      if (to <= position) this.saved[row] = saved;
      const start = Math.max(from, position);
      const length = Math.min(to, end) - start;
      if (length <= 0) continue;
      const width = embeddings.length / (to - from);
      const part = embeddings.subarray((start - from) * width, (start - from + length) * width);
      const first = start - from;
      const span = grid && { columns: grid.columns, first, time: from - savedBefore, saved: saved - savedBefore };
      this.embedded.push({ row, first: start - position, length, embeddings: part, attendsAhead, span });
    }
  }

  /**
   * Returns a coordinate for rope of one token of a row. `index`: counted from the row's first token. `axis`: 0 =
   * time, 1 = row, 2 = column. All coordinates of a token are its position, except in images with M-RoPE.
   */
  coordinate(row: number, index: number, axis: number): number {
    let position = (this.position[row] as number) - (this.saved[row] as number) + index;
    for (const { row: ofPart, first, length, span } of this.embedded) {
      if (ofPart !== row || span === null || index < first) continue;
      if (index >= first + length) {
        position -= span.saved;
        continue;
      }
      const embedding = span.first + index - first;
      if (axis === 1) return span.time + Math.floor(embedding / span.columns);
      return axis === 2 ? span.time + (embedding % span.columns) : span.time;
    }
    return position;
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
   * - tokens: the row's tokens one after another, a row each
   */
  readonly pooled: Float32Array;
  /** For each batch row: its first row in `pooled` (the only one, except with pooling `tokens`); -1 if it has none. */
  readonly pooledRow: Int32Array;
}
