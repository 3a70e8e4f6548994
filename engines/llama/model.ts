// Owns one loaded llama.cpp model and its context: the LoadedModel of the native engine. Called only by the step loop,
// on the thread that loaded it. It keeps native sequence ids dense and batches sorted by them, because llama.cpp is
// several times slower otherwise; the scheduler knows nothing of that.
import assert from "node:assert/strict";
import koffi from "koffi";
import { ServerError } from "../../runtime/errors.ts";
import type { Batch, StepOutput } from "../batch.ts";
import type { Capabilities, Capacity, KvCache, LoadedModel, ModelCard, SavedKv, TokenClasses } from "../engine.ts";
import type { LlamaFunctions, Pointer } from "./abi.ts";
import type { ComputeLock } from "./compute-lock.ts";
import { NativeBatchView } from "./native-batch.ts";
import { SlotMap } from "./slot-map.ts";

/** What loading produced; LlamaModel owns it from here on. */
export interface LoadedHandles {
  readonly functions: LlamaFunctions;
  readonly model: Pointer;
  readonly context: Pointer;
  readonly card: ModelCard;
  readonly capacity: Capacity;
  readonly capabilities: Capabilities;
  readonly computeLock: ComputeLock | null;
}

/** A sequence with more KV cache than this stays where it is: moving it would hold up all the others. */
const maxMovedBytes = 32 * 1024 * 1024;

// Token fed in the place of a sequence that has no row in a step, only to keep the ids of the pass dense.
const fillerToken = 0;

/** A sequence as llama.cpp writes it; what follows in `bytes` means nothing. */
class SavedSequence {
  readonly bytes: Uint8Array;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
  }
}

export class LlamaModel implements LoadedModel, KvCache {
  readonly card: ModelCard;
  readonly capacity: Capacity;
  readonly capabilities: Capabilities;
  readonly tokens: TokenClasses;
  readonly kv: KvCache = this;
  readonly #functions: LlamaFunctions;
  readonly #model: Pointer;
  readonly #context: Pointer;
  readonly #memory: Pointer;
  readonly #vocab: Pointer;
  readonly #computeLock: ComputeLock | null;
  readonly #native: NativeBatchView;
  readonly #slots: SlotMap;
  readonly #bytesPerToken: number;
  /** Tokens in the KV cache, by slot. */
  readonly #cached: Int32Array;
  /** Row of the batch by native id, -1 = none; all -1 between steps. */
  readonly #rowOfId: Int32Array;
  /** Native id and position of each filler row of the running step. */
  readonly #fillerIds: Int32Array;
  readonly #fillerPositions: Int32Array;
  #fillerCount = 0;
  readonly #logitsRow: Int32Array;
  #logits = new Float32Array(0);
  #logitsAddress = 0n;
  #state = new Uint8Array(0);
  #disposed = false;

  constructor(handles: LoadedHandles) {
    const { functions, model, context, card, capacity, capabilities } = handles;
    this.#functions = functions;
    this.#model = model;
    this.#context = context;
    this.card = card;
    this.capacity = capacity;
    this.capabilities = capabilities;
    this.#computeLock = handles.computeLock;
    this.#memory = functions.getMemory(context);
    this.#vocab = functions.modelGetVocab(model);
    this.tokens = { endOfGeneration: this.#endOfGeneration() };
    const { maxSequences, maxBatchTokens, sequenceTokens } = capacity;
    this.#bytesPerToken = card.kvCacheBytes / (maxSequences * sequenceTokens);
    this.#native = new NativeBatchView(functions, maxBatchTokens + maxSequences);
    this.#slots = new SlotMap(maxSequences);
    this.#cached = new Int32Array(maxSequences);
    this.#rowOfId = new Int32Array(maxSequences).fill(-1);
    this.#fillerIds = new Int32Array(maxSequences);
    this.#fillerPositions = new Int32Array(maxSequences);
    this.#logitsRow = new Int32Array(maxSequences);
  }

  step(batch: Batch): StepOutput {
    // New sequences first: a gap that one of them fills needs no move.
    for (let row = 0; row < batch.rowCount; row++) this.#slots.acquire(at(batch.slot, row));
    this.#closeGap();
    const outputCount = this.#fill(batch);
    const status = this.#decode();
    if (status !== 0) throw decodeError(status, batch);
    this.#removeFillers();
    for (let row = 0; row < batch.rowCount; row++) {
      this.#cached[at(batch.slot, row)] = at(batch.position, row) + at(batch.length, row);
    }
    if (outputCount > 0) this.#viewLogits();
    return { logits: this.#logits, logitsRow: this.#logitsRow };
  }

  #decode(): number {
    this.#computeLock?.acquire();
    try {
      return this.#functions.decode(this.#context, this.#native.batch);
    } finally {
      this.#computeLock?.release();
    }
  }

  release(slot: number): void {
    const id = this.#slots.release(slot);
    if (id >= 0) this.#functions.memoryRemove(this.#memory, id, -1, -1);
    this.#cached[slot] = 0;
  }

  save(slot: number, old: readonly SavedKv[]): SavedKv | null {
    const id = this.#slots.idOf(slot);
    if (id < 0 || at(this.#cached, slot) * this.#bytesPerToken > maxMovedBytes) return null;
    const size = Number(this.#functions.stateSize(this.#context, id));
    const room = old.find((saved) => saved instanceof SavedSequence && saved.bytes.length >= size);
    const bytes = room instanceof SavedSequence ? room.bytes : new Uint8Array(size);
    const written = Number(this.#functions.stateGet(this.#context, bytes, bytes.length, id));
    if (written === 0) throw new ServerError("model_failed", `saving sequence ${id} failed (${size} bytes of state)`);
    return new SavedSequence(bytes);
  }

  restore(slot: number, saved: SavedKv, tokens: number): void {
    assert.ok(saved instanceof SavedSequence, "a copy that another engine made");
    const { bytes } = saved;
    const id = this.#slots.acquire(slot);
    const read = Number(this.#functions.stateSet(this.#context, bytes, bytes.length, id));
    if (read === 0) throw new ServerError("model_failed", `restoring ${tokens} tokens to sequence ${id} failed`);
    this.#functions.memoryRemove(this.#memory, id, tokens, -1);
    this.#cached[slot] = tokens;
  }

  tokenize(text: string): Int32Array {
    const bytes = Buffer.byteLength(text);
    const tokens = new Int32Array(bytes + 2);
    const count = this.#functions.tokenize(this.#vocab, text, bytes, tokens, tokens.length, false, false);
    return tokens.slice(0, Math.max(count, 0));
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#native.free(this.#functions);
    this.#functions.free(this.#context);
    this.#functions.modelFree(this.#model);
    this.#computeLock?.close();
  }

  /** Moves the highest sequence into the lowest gap: one a step, so that the pause stays short. */
  #closeGap(): void {
    if (!this.capabilities.saveState) return;
    const move = this.#slots.compaction();
    if (!move || at(this.#cached, move.slot) * this.#bytesPerToken > maxMovedBytes) return;
    const size = Number(this.#functions.stateSize(this.#context, move.from));
    if (this.#state.length < size) this.#state = new Uint8Array(Math.ceil(size * 1.5));
    const saved = Number(this.#functions.stateGet(this.#context, this.#state, this.#state.length, move.from));
    const restored = saved > 0 ? Number(this.#functions.stateSet(this.#context, this.#state, saved, move.to)) : 0;
    if (restored === 0) {
      throw new ServerError(
        "model_failed",
        `moving sequence ${move.from} to ${move.to} failed (${size} bytes of state)`,
      );
    }
    this.#functions.memoryRemove(this.#memory, move.from, -1, -1);
    this.#slots.moved(move);
  }

  /** Writes the batch to native memory in order of native ids, gaps filled. Returns the number of logits rows. */
  #fill(batch: Batch): number {
    let lowest = Number.MAX_SAFE_INTEGER;
    let highest = -1;
    let firstSingle = Number.MAX_SAFE_INTEGER;
    let lastSingle = -1;
    for (let row = 0; row < batch.rowCount; row++) {
      const id = this.#slots.idOf(at(batch.slot, row));
      this.#rowOfId[id] = row;
      lowest = Math.min(lowest, id);
      highest = Math.max(highest, id);
      if (batch.length[row] === 1) {
        firstSingle = Math.min(firstSingle, id);
        lastSingle = Math.max(lastSingle, id);
      }
    }
    this.#native.clear();
    this.#fillerCount = 0;
    let outputCount = 0;
    for (let id = lowest; id <= highest; id++) {
      const row = at(this.#rowOfId, id);
      this.#rowOfId[id] = -1;
      if (row < 0) {
        // Only rows of one token share a pass with their neighbours; a gap between longer rows costs nothing.
        if (id > firstSingle && id < lastSingle) this.#addFiller(id);
        continue;
      }
      this.#native.addRow(batch, row, id);
      this.#logitsRow[row] = batch.wantLogits[row] === 1 ? outputCount++ : -1;
    }
    this.#native.finish();
    return outputCount;
  }

  #addFiller(id: number): void {
    const slot = this.#slots.slotOf(id);
    // A model that cannot drop its tail would be corrupted by a token too many.
    if (slot >= 0 && !this.capabilities.truncate) return;
    const position = slot >= 0 ? at(this.#cached, slot) : 0;
    this.#fillerIds[this.#fillerCount] = id;
    this.#fillerPositions[this.#fillerCount++] = position;
    this.#native.add(fillerToken, position, id, 0);
  }

  #removeFillers(): void {
    for (let i = 0; i < this.#fillerCount; i++) {
      this.#functions.memoryRemove(this.#memory, at(this.#fillerIds, i), at(this.#fillerPositions, i), -1);
    }
  }

  /** The native output buffer only moves when it grows: its view is kept until then. */
  #viewLogits(): void {
    const pointer = this.#functions.getLogits(this.#context);
    const address = koffi.address(pointer);
    if (address === this.#logitsAddress) return;
    const floats = this.capacity.maxSequences * this.card.vocabSize;
    this.#logits = new Float32Array(koffi.view(pointer, floats * Float32Array.BYTES_PER_ELEMENT));
    this.#logitsAddress = address;
  }

  #endOfGeneration(): number[] {
    const tokens: number[] = [];
    for (let token = 0; token < this.card.vocabSize; token++) {
      if (this.#functions.vocabIsEndOfGeneration(this.#vocab, token)) tokens.push(token);
    }
    return tokens;
  }
}

/** Element of a typed array at an index the caller knows to be inside. */
function at(array: Int32Array | Uint8Array, index: number): number {
  return array[index] as number;
}

function decodeError(status: number, batch: Batch): ServerError {
  const meanings: Readonly<Record<number, string>> = {
    1: "no KV cache cell is free",
    2: "it was aborted",
    [-1]: "the batch is not valid",
    [-2]: "memory could not be allocated",
    [-3]: "the computation failed",
  };
  const meaning = meanings[status] ?? "unknown status";
  return new ServerError(
    "model_failed",
    `the forward pass over ${batch.rowCount} rows, ${batch.tokenCount} tokens failed with status ${status}: ${meaning}`,
  );
}
