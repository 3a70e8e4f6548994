// Owns one loaded model of the wasm engine: the LoadedModel the step loop calls, on the leader's thread. It keeps the books
// of the KV pages, cuts a step into passes, and computes its own share of each as thread 0 of the team.
import { ServerError } from "../../runtime/errors.ts";
import type { Batch, StepOutput } from "../batch.ts";
import type { Capabilities, Capacity, KvCache, LoadedModel, ModelCard, SavedKv, TokenClasses } from "../engine.ts";
import type { Blueprint } from "./blueprint.ts";
import type { ComputeThread, SharedBlocks } from "./compute-thread.ts";
import type { HelperThread } from "./helper-thread.ts";
import { copyFields, type Order, rowField, rowFields } from "./order.ts";
import { type PageTable, SavedPages } from "./pages.ts";

/** What loading produced; WasmModel owns it from here on. */
export interface LoadedParts {
  readonly blueprint: Blueprint;
  readonly card: ModelCard;
  readonly capacity: Capacity;
  readonly tokens: TokenClasses;
  readonly leader: ComputeThread;
  readonly helpers: readonly HelperThread[];
  readonly shared: SharedBlocks;
  readonly pages: PageTable;
  readonly abortFlag: SharedArrayBuffer | null;
}

export class WasmModel implements LoadedModel, KvCache {
  readonly card: ModelCard;
  readonly capacity: Capacity;
  readonly capabilities: Capabilities = { truncate: true, copyPrefix: true, saveState: true, adaptersPerStep: 0 };
  readonly tokens: TokenClasses;
  readonly kv: KvCache = this;
  /** Its vocabulary is the one the agents side has built from the same file: there is nothing to compare. */
  readonly tokenize = null;
  readonly #leader: ComputeThread;
  readonly #helpers: readonly HelperThread[];
  readonly #pages: PageTable;
  readonly #order: Order;
  readonly #passTokens: number;
  readonly #vocabSize: number;
  readonly #logits: Float32Array;
  readonly #logitsRow: Int32Array;
  readonly #abortFlag: Uint8Array | null;
  #disposed = false;
  /** Why no further pass can be run; set when a thread ends. */
  #broken: ServerError | null = null;

  constructor({ blueprint, card, capacity, tokens, leader, helpers, shared, pages, abortFlag }: LoadedParts) {
    this.card = card;
    this.capacity = capacity;
    this.tokens = tokens;
    this.#leader = leader;
    this.#helpers = helpers;
    this.#pages = pages;
    this.#order = leader.order;
    this.#passTokens = blueprint.passTokens;
    this.#vocabSize = blueprint.shape.vocabSize;
    this.#logits = new Float32Array(shared.logits);
    this.#logitsRow = new Int32Array(capacity.maxSequences);
    this.#abortFlag = abortFlag && new Uint8Array(abortFlag);
    for (const helper of helpers) void helper.ended.then((reason) => this.#helperEnded(reason));
  }

  step(batch: Batch): StepOutput {
    if (this.#broken) throw this.#broken;
    this.#checkTokens(batch);
    try {
      this.#runPasses(batch);
    } catch (error) {
      this.#leader.team.fail();
      this.#broken ??= asModelFailure(error);
      throw this.#broken;
    }
    return { logits: this.#logits, logitsRow: this.#logitsRow };
  }

  release(slot: number): void {
    this.#pages.release(slot);
  }

  save(slot: number, old: readonly SavedKv[]): SavedKv | null {
    return this.#pages.save(slot, old.map(ownPages));
  }

  restore(slot: number, saved: SavedKv, tokens: number): void {
    this.#pages.restore(slot, ownPages(saved), tokens);
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#leader.team.stop();
    for (const helper of this.#helpers) void helper.terminate();
  }

  /** Fills orders with the batch's rows, as many tokens a pass as fit, and runs each. */
  #runPasses(batch: Batch): void {
    const order = this.#order;
    let outputs = 0;
    this.#beginPass(0);
    for (let row = 0; row < batch.rowCount; row++) {
      const length = batch.length[row] as number;
      const position = batch.position[row] as number;
      // Before pages are taken: a pass has room for a copy of a page for each of its rows, and no more.
      if (order.tokenCount === this.#passTokens) this.#nextPass(outputs);
      this.#pages.grow(batch.slot[row] as number, position, position + length);
      let done = 0;
      while (done < length) {
        if (order.tokenCount === this.#passTokens) this.#nextPass(outputs);
        const count = Math.min(length - done, this.#passTokens - order.tokenCount);
        this.#addRow(batch, row, done, count);
        done += count;
      }
      const wanted = batch.wantLogits[row] === 1;
      if (wanted) order.outputs[order.outputCount++] = order.tokenCount - 1;
      this.#logitsRow[row] = wanted ? outputs++ : -1;
    }
    this.#runPass();
  }

  #nextPass(firstLogits: number): void {
    this.#runPass();
    this.#beginPass(firstLogits);
  }

  #beginPass(firstLogits: number): void {
    this.#order.clear();
    this.#order.firstLogits = firstLogits;
  }

  #addRow(batch: Batch, row: number, from: number, count: number): void {
    const order = this.#order;
    const slot = batch.slot[row] as number;
    const at = order.rowCount * rowFields;
    const firstPage = order.rowCount === 0 ? 0 : this.#endOfPages(order.rowCount - 1);
    const blocks = this.#pages.blockCount(slot);
    order.rows[at + rowField.firstToken] = order.tokenCount;
    order.rows[at + rowField.length] = count;
    order.rows[at + rowField.firstPosition] = (batch.position[row] as number) + from;
    order.rows[at + rowField.firstPage] = firstPage;
    order.rows[at + rowField.blockCount] = blocks;
    order.rows[at + rowField.adapter] = batch.adapter[row] as number;
    const pages = this.#pages.pages(slot);
    for (let block = 0; block < blocks; block++) order.pages[firstPage + block] = pages[block] as number;
    const offset = (batch.offset[row] as number) + from;
    for (let i = 0; i < count; i++) order.tokens[order.tokenCount + i] = batch.tokens[offset + i] as number;
    order.tokenCount += count;
    order.rowCount++;
  }

  #endOfPages(row: number): number {
    return this.#order.row(row, rowField.firstPage) + this.#order.row(row, rowField.blockCount);
  }

  #runPass(): void {
    if (this.#abortFlag?.[0] === 1) throw new ServerError("model_failed", "the forward pass was aborted");
    const order = this.#order;
    for (const { thread, from, to } of this.#pages.copies) {
      const at = order.copyCount++ * copyFields;
      order.copies[at] = thread;
      order.copies[at + 1] = from;
      order.copies[at + 2] = to;
    }
    this.#pages.clearCopies();
    this.#leader.team.giveOrder();
    this.#leader.runPass();
  }

  /** A token outside the vocabulary would read somebody else's memory. */
  #checkTokens(batch: Batch): void {
    for (let i = 0; i < batch.tokenCount; i++) {
      const token = batch.tokens[i] as number;
      if (token >= 0 && token < this.#vocabSize) continue;
      throw new ServerError("model_failed", `token ${token} is outside the vocabulary of ${this.#vocabSize}`);
    }
  }

  #helperEnded(reason: ServerError): void {
    if (!this.#disposed) this.#broken ??= reason;
  }
}

function ownPages(saved: SavedKv): SavedPages {
  if (saved instanceof SavedPages) return saved;
  throw new Error("a KV copy of another engine cannot be restored here");
}

function asModelFailure(error: unknown): ServerError {
  if (error instanceof ServerError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new ServerError("model_failed", `the wasm engine's forward pass failed: ${message}`, { cause: error });
}
