// NativeBatchView: one llama_batch with typed views of its arrays, so that writing the batch allocates nothing per
// step. The batch uses native sequence ids, not slots.
import koffi from "koffi";
import type { Batch } from "../../../batch.ts";
import type { LlamaFunctions, NativeBatch } from "../abi.ts";
import type { Pointer } from "../pointer.ts";

export class NativeBatchView {
  readonly batch: NativeBatch;
  readonly #token: Int32Array;
  readonly #position: Int32Array;
  readonly #sequence: Int32Array;
  readonly #wanted: Int8Array;
  readonly #lists: BigUint64Array;
  readonly #ownLists: BigUint64Array;
  #count = 0;

  constructor(functions: LlamaFunctions, maxTokens: number) {
    this.batch = functions.batchInit(maxTokens, 0, 1);
    const view = (pointer: Pointer, bytes: number) => koffi.view(pointer, maxTokens * bytes);
    this.#token = new Int32Array(view(this.batch.token, 4));
    this.#position = new Int32Array(view(this.batch.pos, 4));
    this.#wanted = new Int8Array(view(this.batch.logits, 1));
    new Int32Array(view(this.batch.n_seq_id, 4)).fill(1);
    // seq_id[i] points to the list of sequences of token i; batchInit allocates each list separately. This constructor
    // redirects all pointers into one array, which a typed view can write. The original pointers are restored before
    // llama.cpp frees the batch.
    this.#sequence = new Int32Array(maxTokens);
    this.#lists = new BigUint64Array(view(this.batch.seq_id, 8));
    this.#ownLists = this.#lists.slice();
    const base = koffi.address(this.#sequence);
    for (let i = 0; i < maxTokens; i++) this.#lists[i] = base + BigInt(i * Int32Array.BYTES_PER_ELEMENT);
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

  addRow(batch: Batch, row: number, sequence: number): void {
    const length = batch.length[row] as number;
    const firstWanted = length - (batch.logitsCount[row] as number);
    for (let i = 0; i < length; i++) this.addToken(batch, row, sequence, i, i >= firstWanted ? 1 : 0);
  }

  /** Adds one token of a batch row; `index` is counted from the row's first token. */
  addToken(batch: Batch, row: number, sequence: number, index: number, wantOutput: number): void {
    const token = batch.tokens[(batch.offset[row] as number) + index] as number;
    this.add(token, (batch.position[row] as number) + index, sequence, wantOutput);
  }

  /** Stores the number of tokens in the native batch. Call before the batch is used. */
  finish(): void {
    this.batch.n_tokens = this.#count;
  }
}
