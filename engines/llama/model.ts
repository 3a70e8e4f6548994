// LlamaModel: a loaded llama.cpp model that generates. Called only by the step loop, on the thread that loaded it. Rows
// are fed in the order of their native sequence ids, and gaps between ids are filled with filler tokens, because
// llama.cpp is several times slower with gaps. The scheduler is not aware of filler tokens.
import assert from "node:assert/strict";
import koffi from "koffi";
import { ServerError } from "../../runtime/errors.ts";
import type { Batch, StepOutput } from "../batch.ts";
import type { Capabilities, Capacity, KvCache, LoadedModel, ModelCard, TokenClasses } from "../engine.ts";
import type { LlamaAdapters } from "./adapters/adapters.ts";
import type { NativeCollector } from "./calibration/native-collector.ts";
import { EmbeddedParts, type EmbeddedSizes } from "./embedded-parts.ts";
import type { SlotKv } from "./kv/slot-kv.ts";
import type { LlamaHeads } from "./mtp/mtp.ts";
import { NativeBatchView } from "./native/memory/native-batch.ts";
import type { NativeContext } from "./native/native-context.ts";
import { PooledPasses } from "./pooled-passes.ts";
import { RowOrder } from "./row-order.ts";

/** Parts of a loaded model; LlamaModel takes ownership of them. */
export interface LoadedParts {
  readonly context: NativeContext;
  readonly kv: SlotKv;
  readonly card: ModelCard;
  readonly capacity: Capacity;
  readonly capabilities: Capabilities;
  /** Maximum number of outputs in a pass, as set when the context was opened. */
  readonly maxOutputs: number;
  readonly heads: LlamaHeads | null;
  readonly adapters: LlamaAdapters | null;
  readonly collector: NativeCollector | null;
  /** Ids of the tokens that are never sampled. */
  readonly suppressed: readonly number[];
  /** Sizes of the passes for images and audio; null if the model accepts neither. */
  readonly embeddedSizes: Omit<EmbeddedSizes, "width"> | null;
}

// Token fed to a sequence that has no row in a step, only to keep the sequence ids of the pass dense.
const fillerToken = 0;

export class LlamaModel implements LoadedModel {
  readonly card: ModelCard;
  readonly capacity: Capacity;
  readonly capabilities: Capabilities;
  readonly tokens: TokenClasses;
  readonly kv: KvCache;
  readonly mtp: LlamaHeads | null;
  readonly adapters: LlamaAdapters | null;
  readonly calibration: NativeCollector | null;
  readonly #context: NativeContext;
  readonly #slots: SlotKv;
  readonly #native: NativeBatchView;
  readonly #pooled: PooledPasses;
  readonly #order: RowOrder;
  /** Feeds the images and audio of rows; null if the model accepts neither. */
  readonly #embedded: EmbeddedParts | null;
  /** Native id and position of each filler row of the current step. */
  readonly #fillerIds: Int32Array;
  readonly #fillerPositions: Int32Array;
  #fillerCount = 0;
  /** Lowest native id among the rows with one token. `#lastSingle`: highest native id among them. */
  #firstSingle = 0;
  #lastSingle = -1;
  readonly #logitsRow: Int32Array;
  #logits = new Float32Array(0);
  #logitsAddress = 0n;

  constructor(parts: LoadedParts) {
    const { context, kv, card, capacity, capabilities, maxOutputs, heads, adapters, collector, embeddedSizes } = parts;
    const { maxSequences, maxBatchTokens } = capacity;
    const { pooling, pooledLength } = capabilities;
    this.#context = context;
    this.#slots = kv;
    this.kv = kv;
    this.mtp = heads;
    this.adapters = adapters;
    this.calibration = collector;
    this.card = card;
    this.capacity = capacity;
    this.capabilities = capabilities;
    this.tokens = { endOfGeneration: context.endOfGeneration(card.vocabSize), suppressed: parts.suppressed };
    this.#native = new NativeBatchView(context.functions, maxBatchTokens + maxSequences);
    this.#pooled = new PooledPasses(context, this.#native, { pooling, pooledLength, maxSequences, maxOutputs });
    this.#order = new RowOrder(maxSequences);
    const width = context.functions.modelInputLength(context.model);
    this.#embedded =
      embeddedSizes && new EmbeddedParts(context, this.#native, maxSequences, { width, ...embeddedSizes });
    this.#fillerIds = new Int32Array(maxSequences);
    this.#fillerPositions = new Int32Array(maxSequences);
    this.#logitsRow = new Int32Array(maxSequences);
  }

  step(batch: Batch): StepOutput {
    this.#selectAdapter(batch);
    this.#slots.prepare(batch);
    this.#order.arrange(batch, this.#slots);
    // The logits pass runs last, because each pass overwrites the outputs of the previous one.
    this.#pooled.run(batch, this.#order);
    this.#embedded?.run(batch, this.#order);
    const outputCount = this.#fill(batch);
    if (this.#native.count > 0) this.#context.decode(this.#native);
    this.#removeFillers();
    if (this.#native.count > 0) this.mtp?.feeder.follow(batch);
    this.#slots.commit(batch);
    if (outputCount > 0) this.#viewLogits(outputCount);
    const { output: pooled, row: pooledRow } = this.#pooled;
    return { logits: this.#logits, logitsRow: this.#logitsRow, pooled, pooledRow };
  }

  tokenize(text: string): Int32Array {
    return this.#context.tokenize(text);
  }

  dispose(): void {
    if (this.#context.isDisposed) return;
    this.adapters?.dispose();
    this.mtp?.dispose();
    this.#embedded?.free(this.#context.functions);
    this.#native.free(this.#context.functions);
    this.#context.dispose();
    this.calibration?.dispose();
  }

  /**
   * Selects the adapter of a step. All rows must use the same adapter, because llama.cpp applies one set of adapters to
   * a whole pass.
   */
  #selectAdapter(batch: Batch): void {
    const adapter = batch.rowCount > 0 ? at(batch.adapter, 0) : 0;
    for (let row = 1; row < batch.rowCount; row++) {
      if (at(batch.adapter, row) === adapter) continue;
      throw new ServerError(
        "model_failed",
        `a step has rows of adapters ${adapter} and ${batch.adapter[row]}; one adapter per step is expected`,
      );
    }
    if (this.adapters !== null) this.adapters.select(adapter);
    else assert.equal(adapter, 0, "this model takes no adapters");
  }

  /**
   * Writes the step's rows, except pooled ones, to native memory and fills the gaps between ids. Returns the number of
   * logits rows.
   */
  #fill(batch: Batch): number {
    const { rows, ids, count } = this.#order;
    this.#findSingles(batch);
    this.#native.clear();
    this.#fillerCount = 0;
    let outputCount = 0;
    let lastId = -1;
    for (let i = 0; i < count; i++) {
      const row = at(rows, i);
      const id = at(ids, i);
      // Only gaps between one-token rows are filled. A gap between longer rows also ends a pass, but filling it with
      // one token would not join these rows into one pass.
      if (lastId >= this.#firstSingle && id <= this.#lastSingle) this.#fillGap(lastId + 1, id);
      lastId = id;
      this.#logitsRow[row] = -1;
      if (batch.wantPooled[row] === 1) continue;
      this.mtp?.feeder.place(row, this.#native.count);
      this.#native.addRow(batch, row, id, this.#embedded?.first[row] ?? 0);
      const wanted = at(batch.logitsCount, row);
      if (wanted > 0) this.#logitsRow[row] = outputCount;
      outputCount += wanted;
    }
    assert.ok(
      outputCount <= this.capacity.maxLogitsRows,
      `${outputCount} logits rows of ${this.capacity.maxLogitsRows}`,
    );
    return outputCount;
  }

  #findSingles(batch: Batch): void {
    const { rows, ids, count } = this.#order;
    this.#firstSingle = Number.MAX_SAFE_INTEGER;
    this.#lastSingle = -1;
    for (let i = 0; i < count; i++) {
      if (at(batch.length, at(rows, i)) !== 1 || batch.wantPooled[at(rows, i)] === 1) continue;
      this.#firstSingle = Math.min(this.#firstSingle, at(ids, i));
      this.#lastSingle = at(ids, i);
    }
  }

  /** Feeds a filler token to each native sequence with from <= id < to that can take a filler. */
  #fillGap(from: number, to: number): void {
    for (let id = from; id < to; id++) {
      const position = this.#slots.fillerPosition(id);
      if (position < 0) continue;
      this.#fillerIds[this.#fillerCount] = id;
      this.#fillerPositions[this.#fillerCount++] = position;
      this.#native.add(fillerToken, position, id, 0);
    }
  }

  #removeFillers(): void {
    for (let i = 0; i < this.#fillerCount; i++) {
      this.#context.remove(at(this.#fillerIds, i), at(this.#fillerPositions, i));
    }
  }

  /**
   * Updates the view of the native output buffer. The view is replaced only if the buffer has moved, which happens only
   * when the buffer grows.
   */
  #viewLogits(rowCount: number): void {
    const pointer = this.#context.logitsPointer();
    const address = koffi.address(pointer);
    const { vocabSize } = this.card;
    if (address === this.#logitsAddress && rowCount * vocabSize <= this.#logits.length) return;
    // The buffer has room for at least one row per sequence.
    const floats = Math.max(rowCount, this.capacity.maxSequences) * vocabSize;
    this.#logits = new Float32Array(koffi.view(pointer, floats * Float32Array.BYTES_PER_ELEMENT));
    this.#logitsAddress = address;
  }
}

/** Returns an element of a typed array at an index known to be in bounds. */
function at(array: Int32Array, index: number): number {
  return array[index] as number;
}
