// KV cache with one stream of memory per sequence: maps slots to native sequences, and keeps copies as bytes in main
// memory. llama.cpp splits a pass at every gap between sequence ids, so ids are kept dense. This class never calls
// llama.cpp's own copy function, because copying a part of a stream with it ends the process.
import assert from "node:assert/strict";
import type { Batch } from "../../batch.ts";
import type { Capacity, SavedKv } from "../../engine.ts";
import type { NativeContext } from "../native/native-context.ts";
import { CopyBuffers } from "./copy-buffers.ts";
import type { SlotKv } from "./slot-kv.ts";
import { SlotMap } from "./slot-map.ts";
import type { SlotPositions } from "./slot-positions.ts";
import { isState, positionsOf, type StateShape } from "./state-bytes.ts";

export interface StreamsOptions {
  readonly capacity: Capacity;
  readonly layout: string;
  /** Whether the last tokens of a sequence can be dropped. */
  readonly truncates: boolean;
  readonly bytesPerToken: number;
  /**
   * Positions of the slots' tokens; null for models without M-RoPE, in which the position of a token is its index in
   * the sequence.
   */
  readonly positions: SlotPositions | null;
}

/** Size of the memory for copies as a fraction of the KV cache size. It is allocated in addition to the KV cache. */
const copiesShare = 0.25;
/**
 * Maximum KV size of a sequence that is moved to close a gap. A longer move would delay all other sequences too much.
 */
const maxMovedBytes = 32 * 2 ** 20;
/** Maximum size of the state buffer that is kept between steps. */
const maxKeptBytes = 64 * 2 ** 20;

/** A sequence state serialised by llama.cpp: the first `size` bytes of `bytes`. */
class SavedState {
  readonly bytes: Uint8Array;
  readonly size: number;
  readonly tokens: number;
  /**
   * Position of each token; null for models without M-RoPE, in which the position of a token is its index in the
   * sequence.
   */
  readonly positions: Int32Array | null;
  /** Whether no other reference to `bytes` exists. */
  isOwn: boolean;
  isDropped = false;

  constructor(bytes: Uint8Array, size: number, tokens: number, positions: Int32Array | null, isOwn: boolean) {
    this.bytes = bytes;
    this.size = size;
    this.tokens = tokens;
    this.positions = positions;
    this.isOwn = isOwn;
  }
}

export class StreamsKv implements SlotKv {
  readonly layout: string;
  readonly #context: NativeContext;
  readonly #capacity: Capacity;
  readonly #truncates: boolean;
  readonly #bytesPerToken: number;
  readonly #positions: SlotPositions | null;
  readonly #shape: StateShape;
  readonly #slots: SlotMap;
  readonly #buffers: CopyBuffers;
  /** For each slot: `#cached` is the number of tokens in the KV cache, `#blocks` the number of reserved blocks. */
  readonly #cached: Int32Array;
  readonly #blocks: Int32Array;
  #usedBlocks = 0;
  /**
   * Serialised state of slot `#stateSlot`, which had `#stateTokens` tokens. Other slots that copy a prefix of this slot
   * are filled from this state. `#stateSlot` is -1 if there is no state.
   */
  #state = new Uint8Array(0);
  #stateSize = 0;
  #stateSlot = -1;
  #stateTokens = 0;

  constructor(context: NativeContext, { capacity, layout, truncates, bytesPerToken, positions }: StreamsOptions) {
    const { maxSequences, sequenceTokens } = capacity;
    this.layout = layout;
    this.#context = context;
    this.#capacity = capacity;
    this.#truncates = truncates;
    this.#bytesPerToken = bytesPerToken;
    this.#positions = positions;
    this.#shape = { streams: maxSequences, bytesPerToken, keepsAll: truncates };
    this.#slots = new SlotMap(maxSequences);
    this.#buffers = new CopyBuffers(maxSequences * sequenceTokens * bytesPerToken * copiesShare);
    this.#cached = new Int32Array(maxSequences);
    this.#blocks = new Int32Array(maxSequences);
  }

  get freeBlocks(): number {
    return this.#capacity.kvBlocks - this.#usedBlocks;
  }

  idOf(slot: number): number {
    return this.#slots.idOf(slot);
  }

  prepare(batch: Batch): void {
    if (this.#state.length > maxKeptBytes) this.#forgetState(true);
    // New sequences get their ids before a gap is closed, because they may fill the gap without a move.
    for (let row = 0; row < batch.rowCount; row++) {
      const slot = at(batch.slot, row);
      this.#slots.acquire(slot);
      if (at(batch.position, row) < at(this.#cached, slot)) this.#truncate(slot, at(batch.position, row));
    }
    this.#closeGap();
  }

  commit(batch: Batch): void {
    this.#positions?.record(batch);
    for (let row = 0; row < batch.rowCount; row++) {
      this.#hold(at(batch.slot, row), at(batch.position, row) + at(batch.length, row));
    }
  }

  fillerPosition(id: number): number {
    const slot = this.#slots.slotOf(id);
    if (slot < 0) return 0;
    // No padding token (filler token) is fed in two cases: a model that cannot drop its last tokens would keep the
    // filler token, and a full stream has no room for it.
    const position = at(this.#cached, slot);
    return this.#truncates && position < this.#capacity.sequenceTokens ? position : -1;
  }

  reserve(slot: number, tokens: number): boolean {
    if (tokens > this.#capacity.sequenceTokens) return false;
    const blocks = Math.ceil(tokens / this.#capacity.blockTokens);
    const more = blocks - at(this.#blocks, slot);
    if (more > 0) {
      this.#blocks[slot] = blocks;
      this.#usedBlocks += more;
    }
    return true;
  }

  release(slot: number): void {
    const id = this.#slots.release(slot);
    if (id >= 0) this.#context.remove(id, -1);
    if (slot === this.#stateSlot) this.#forgetState(false);
    this.#usedBlocks -= at(this.#blocks, slot);
    this.#blocks[slot] = 0;
    this.#cached[slot] = 0;
  }

  copyPrefix(from: number, to: number, tokens: number): void {
    assert.ok(this.#truncates && tokens <= at(this.#cached, from), `the first ${tokens} tokens of slot ${from}`);
    // The state is kept, because several slots may copy the same prefix.
    if (from !== this.#stateSlot || tokens > this.#stateTokens) this.#readState(from);
    const positions = this.#positions?.copy(from, this.#stateTokens) ?? null;
    this.#fill(to, { bytes: this.#state.subarray(0, this.#stateSize), tokens: this.#stateTokens, positions }, tokens);
  }

  save(slot: number, tokens = at(this.#cached, slot)): SavedKv | null {
    if (tokens < at(this.#cached, slot)) this.#truncate(slot, tokens);
    const id = this.idOf(slot);
    assert.ok(id >= 0, `slot ${slot} holds nothing`);
    const size = this.#context.stateSize(id);
    const bytes = this.#buffers.take(size);
    if (bytes === null) return null;
    this.#context.readState(id, bytes);
    const held = at(this.#cached, slot);
    return new SavedState(bytes, size, held, this.#positions?.copy(slot, held) ?? null, true);
  }

  drop(saved: SavedKv): void {
    const copy = ownCopy(saved);
    copy.isDropped = true;
    // The bytes of an exported copy must not be reused for another copy, because a write of these bytes to disk may
    // still be in progress.
    if (copy.isOwn) this.#buffers.give(copy.bytes);
    else this.#buffers.forget(copy.bytes.length);
  }

  restore(slot: number, saved: SavedKv, tokens: number): void {
    const { bytes, size, tokens: held, positions } = ownCopy(saved);
    assert.ok(this.#truncates ? tokens <= held : tokens === held, `${tokens} tokens of a copy that has ${held}`);
    this.#fill(slot, { bytes: bytes.subarray(0, size), tokens: held, positions }, tokens);
  }

  export(saved: SavedKv): Uint8Array {
    const copy = ownCopy(saved);
    copy.isOwn = false;
    return copy.bytes.subarray(0, copy.size);
  }

  import(bytes: Uint8Array, tokens: number): SavedKv | null {
    const fits = tokens <= this.#capacity.sequenceTokens && isState(bytes, this.#shape, tokens);
    if (!fits || !this.#buffers.count(bytes.length)) return null;
    const positions = this.#positions && positionsOf(bytes, tokens);
    return new SavedState(bytes, bytes.length, tokens, positions, false);
  }

  /** Restores the first `tokens` tokens of a saved state into an empty slot. */
  #fill(slot: number, state: Pick<SavedState, "bytes" | "tokens" | "positions">, tokens: number): void {
    const id = this.#slots.acquire(slot);
    this.#context.writeState(id, state.bytes);
    if (state.positions) this.#positions?.set(slot, state.positions);
    if (tokens < state.tokens) this.#context.remove(id, this.#positions?.end(slot, tokens) ?? tokens);
    this.#hold(slot, tokens);
  }

  #hold(slot: number, tokens: number): void {
    this.#cached[slot] = tokens;
    this.reserve(slot, tokens);
  }

  #truncate(slot: number, tokens: number): void {
    assert.ok(this.#truncates, `this model cannot drop the tail of slot ${slot}`);
    this.#context.remove(this.idOf(slot), this.#positions?.end(slot, tokens) ?? tokens);
    this.#cached[slot] = tokens;
    if (slot === this.#stateSlot && tokens < this.#stateTokens) this.#forgetState(false);
  }

  #readState(slot: number): void {
    const id = this.idOf(slot);
    const size = this.#context.stateSize(id);
    if (this.#state.length < size) this.#state = new Uint8Array(Math.ceil(size * 1.25));
    this.#context.readState(id, this.#state);
    this.#stateSize = size;
    this.#stateSlot = slot;
    this.#stateTokens = at(this.#cached, slot);
  }

  #forgetState(andRoom: boolean): void {
    this.#stateSlot = -1;
    if (andRoom) this.#state = new Uint8Array(0);
  }

  /**
   * Moves the sequence with the highest id into the lowest gap. Only one sequence is moved per step, to keep the pause
   * short.
   */
  #closeGap(): void {
    const move = this.#slots.compaction();
    if (!move || at(this.#cached, move.slot) * this.#bytesPerToken > maxMovedBytes) return;
    this.#readState(move.slot);
    this.#context.writeState(move.to, this.#state.subarray(0, this.#stateSize));
    this.#context.remove(move.from, -1);
    this.#slots.moved(move);
  }
}

function ownCopy(saved: SavedKv): SavedState {
  assert.ok(saved instanceof SavedState && !saved.isDropped, "the copy comes from another engine, or was dropped");
  return saved;
}

/** Returns an element of a typed array at an index known to be in bounds. */
function at(array: Int32Array, index: number): number {
  return array[index] as number;
}
