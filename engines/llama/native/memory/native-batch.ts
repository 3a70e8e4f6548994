// NativeBatchView: one llama_batch with typed views of its arrays, so that writing the batch allocates nothing per
// step. The batch uses native sequence ids, not slots.
import koffi from "koffi";
import type { Batch } from "../../../batch.ts";
import type { LlamaFunctions, NativeBatch } from "../abi.ts";
import type { Pointer } from "../pointer.ts";

/** Number of coordinates of an image embedding: time, row and column. */
const gridAxes = 3;

export class NativeBatchView {
  readonly batch: NativeBatch;
  /** Number of positions that llama.cpp needs for each embedding. */
  readonly #axes: number;
  readonly #token: Int32Array;
  readonly #position: Int32Array;
  readonly #sequence: Int32Array;
  readonly #wanted: Int8Array;
  readonly #lists: BigUint64Array;
  readonly #ownLists: BigUint64Array;
  #count = 0;

  /**
   * `width`: number of floats in an embedding, for a batch of embeddings; 0 for a batch of tokens. `axes`: number of positions of each
   * embedding; a token always has one.
   */
  constructor(functions: LlamaFunctions, maxTokens: number, width = 0, axes = 1) {
    // llama.cpp allocates only one position per token or embedding, so `axes` times as many are requested. The additional memory for
    // embeddings is never written, so it uses no physical memory.
    this.batch = functions.batchInit(maxTokens * axes, width, 1);
    this.#axes = axes;
    const view = (pointer: Pointer, bytes: number) => koffi.view(pointer, maxTokens * axes * bytes);
    this.#token = width > 0 ? new Int32Array(maxTokens * axes) : new Int32Array(view(this.batch.token, 4));
    this.#position = new Int32Array(view(this.batch.pos, 4));
    this.#wanted = new Int8Array(view(this.batch.logits, 1));
    new Int32Array(view(this.batch.n_seq_id, 4)).fill(1);
    // seq_id[i] points to the list of sequences of token i; batchInit allocates each list separately. This constructor
    // redirects all pointers into one array, which a typed view can write. The original pointers are restored before
    // llama.cpp frees the batch.
    this.#sequence = new Int32Array(maxTokens * axes);
    this.#lists = new BigUint64Array(view(this.batch.seq_id, 8));
    this.#ownLists = this.#lists.slice();
    const base = koffi.address(this.#sequence);
    for (let i = 0; i < maxTokens * axes; i++) this.#lists[i] = base + BigInt(i * Int32Array.BYTES_PER_ELEMENT);
  }

  free(functions: LlamaFunctions): void {
    this.#lists.set(this.#ownLists);
    functions.batchFree(this.batch);
  }

  get count(): number {
    return this.#count;
  }

  clear(): void {
    this.#count = 0;
  }

  add(token: number, position: number, sequence: number, wantOutput: number): void {
    const i = this.#count++;
    this.#token[i] = token;
    this.#position[i] = position;
    this.#sequence[i] = sequence;
    this.#wanted[i] = wantOutput;
  }

  /** Adds the tokens of a batch row, from index `first` of the row on. */
  addRow(batch: Batch, row: number, sequence: number, first = 0): void {
    const length = batch.length[row] as number;
    const firstWanted = length - (batch.logitsCount[row] as number);
    for (let i = first; i < length; i++) this.addToken(batch, row, sequence, i, i >= firstWanted ? 1 : 0);
  }

  /** Adds one token of a batch row. `index` is the token's index in the row. */
  addToken(batch: Batch, row: number, sequence: number, index: number, wantOutput: number): void {
    const token = batch.tokens[(batch.offset[row] as number) + index] as number;
    this.add(token, batch.coordinate(row, index, 0), sequence, wantOutput);
  }

  /**
   * Replaces the content of the batch by `count` embeddings of a batch row, from index `first` of the row on. llama.cpp expects all
   * positions in time first, then all rows, then all columns, then a fourth position, which is 0.
   */
  setEmbeddings(batch: Batch, row: number, sequence: number, first: number, count: number): void {
    this.clear();
    for (let i = 0; i < count; i++) this.add(0, batch.coordinate(row, first + i, 0), sequence, 0);
    for (let axis = 1; axis < this.#axes; axis++) {
      for (let i = 0; i < count; i++) {
        this.#position[axis * count + i] = axis < gridAxes ? batch.coordinate(row, first + i, axis) : 0;
      }
    }
  }

  /** Stores the number of tokens in the native batch. Call before the batch is used. */
  finish(): void {
    this.batch.n_tokens = this.#count;
  }
}
