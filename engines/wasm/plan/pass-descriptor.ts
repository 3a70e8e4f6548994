// Pass descriptor: the shared block that tells all compute threads what a pass computes. Only the leader writes it, and
// only between passes. All threads read it during a pass.
import { axisCount } from "../graph/ropes.ts";
import type { PartitionPlan } from "./partition-plan.ts";

/**
 * Indices of the fields of a row.
 *
 * adapter: address of the row's adapter, the same in the memories of all threads; 0 = base model.
 *
 * kept (X-LoRA mixtures only): 1 + number of the slot whose kept adapter weights the row uses; 0 = none.
 *
 * keeps (X-LoRA mixtures only): 1 + number of the slot that keeps the adapter weights of the row's last token; 0 = none.
 *
 * seesAhead: 1 = each token of the row also attends to the later tokens of the row.
 *
 * unattended: number of tokens at the end of the row to which no token attends. These tokens do not even attend to themselves.
 */
export const rowField = {
  firstToken: 0,
  length: 1,
  firstPosition: 2,
  firstPage: 3,
  blockCount: 4,
  adapter: 5,
  kept: 6,
  keeps: 7,
  seesAhead: 8,
  unattended: 9,
};
export const rowFields = 10;

const header = { tokens: 0, rows: 1, outputs: 2, firstLogits: 3, isFirstPass: 4, windows: 5, columns: 6, frames: 7 };
const headerInts = 8;

type Limits = Pick<PartitionPlan, "passTokens" | "maxRows" | "maxOutputs" | "blocksPerSequence" | "shape">;

export class PassDescriptor {
  readonly #header: Int32Array;
  /** Token ids of the pass. For a negative id, the input row of the same index (SharedBlocks.inputRows) replaces the embedding. */
  readonly tokens: Int32Array;
  /** Rows of the pass: `rowFields` integers for each row. */
  readonly rows: Int32Array;
  /** Indices of the tokens whose logits are wanted. */
  readonly outputs: Int32Array;
  /** KV pages of all rows, one page per block of tokens. The pages of a row start at index firstPage. */
  readonly pages: Int32Array;
  /**
   * Coordinates of each token, `axisCount` integers per token: time, row and column. Empty unless a rope of the model has several
   * dimensions.
   */
  readonly coordinates: Int32Array;

  static bytes(limits: Limits): number {
    return sections(limits).reduce((sum, ints) => sum + ints, 0) * Int32Array.BYTES_PER_ELEMENT;
  }

  constructor(buffer: SharedArrayBuffer, limits: Limits) {
    let offset = 0;
    const [first, ...others] = sections(limits).map((ints) => {
      const view = new Int32Array(buffer, offset, ints);
      offset += ints * Int32Array.BYTES_PER_ELEMENT;
      return view;
    });
    const [tokens, rows, outputs, pages, coordinates] = others;
    if (!first || !tokens || !rows || !outputs || !pages || !coordinates) {
      throw new Error("a pass descriptor has six sections");
    }
    this.#header = first;
    this.tokens = tokens;
    this.rows = rows;
    this.outputs = outputs;
    this.pages = pages;
    this.coordinates = coordinates;
  }

  get tokenCount(): number {
    return this.#header[header.tokens] as number;
  }

  set tokenCount(count: number) {
    this.#header[header.tokens] = count;
  }

  get rowCount(): number {
    return this.#header[header.rows] as number;
  }

  set rowCount(count: number) {
    this.#header[header.rows] = count;
  }

  get outputCount(): number {
    return this.#header[header.outputs] as number;
  }

  set outputCount(count: number) {
    this.#header[header.outputs] = count;
  }

  /** Index of the row in the logits buffer that receives the first output of the pass. */
  get firstLogits(): number {
    return this.#header[header.firstLogits] as number;
  }

  set firstLogits(row: number) {
    this.#header[header.firstLogits] = row;
  }

  /** Whether this is the first pass of an X-LoRA mixture. It ends with the classifier instead of logits. */
  get isFirstPass(): boolean {
    return this.#header[header.isFirstPass] === 1;
  }

  set isFirstPass(isFirst: boolean) {
    this.#header[header.isFirstPass] = isFirst ? 1 : 0;
  }

  /**
   * Number of rows that are windows of an image; they come first in the list of rows. Attention that is limited to windows is computed for
   * these rows, all other attention for the remaining rows. 0 except in passes of image encoders.
   */
  get windowCount(): number {
    return this.#header[header.windows] as number;
  }

  set windowCount(count: number) {
    this.#header[header.windows] = count;
  }

  /** Image width in patches; only for passes of image encoders. */
  get patchColumns(): number {
    return this.#header[header.columns] as number;
  }

  set patchColumns(count: number) {
    this.#header[header.columns] = count;
  }

  /** Number of frames of the spectrogram; only for passes of conformers. */
  get frameCount(): number {
    return this.#header[header.frames] as number;
  }

  set frameCount(count: number) {
    this.#header[header.frames] = count;
  }

  clear(): void {
    this.#header.fill(0);
  }

  row(index: number, field: number): number {
    return this.rows[index * rowFields + field] as number;
  }

  /**
   * Appends a row; the caller then appends its tokens with addTokens(). Fields without a parameter are 0. Returns the
   * index in `pages` of the first of the row's `blockCount` pages.
   */
  addRow(length: number, firstPosition: number, blockCount: number): number {
    const last = this.rowCount - 1;
    const firstPage = last < 0 ? 0 : this.row(last, rowField.firstPage) + this.row(last, rowField.blockCount);
    const at = this.rowCount * rowFields;
    this.rows.fill(0, at, at + rowFields);
    this.rows[at + rowField.firstToken] = this.tokenCount;
    this.rows[at + rowField.length] = length;
    this.rows[at + rowField.firstPosition] = firstPosition;
    this.rows[at + rowField.firstPage] = firstPage;
    this.rows[at + rowField.blockCount] = blockCount;
    this.rowCount++;
    return firstPage;
  }

  addTokens(source: Int32Array, from: number, count: number): void {
    const first = this.tokenCount;
    for (let i = 0; i < count; i++) this.tokens[first + i] = source[from + i] as number;
    this.tokenCount = first + count;
  }
}

function sections({ passTokens, maxRows, maxOutputs, blocksPerSequence, shape }: Limits): number[] {
  const coordinates = shape.ropes.some(({ axes }) => axes !== null) ? passTokens * axisCount : 0;
  return [headerInts, passTokens, maxRows * rowFields, maxOutputs, maxRows * blocksPerSequence, coordinates];
}
