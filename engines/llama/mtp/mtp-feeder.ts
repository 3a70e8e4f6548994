// Owns what prediction heads have read: after each step they are fed what the model computed, pairs of a token's hidden state
// and the token behind it. The model, its KV cache and mtp.ts call it; native sequence ids are slots.
// Heads have cells of their own, or read the model's (an assistant that shares its memory): then nothing is fed or removed.
import type { Batch } from "../../batch.ts";
import { NativeFloats } from "../native/memory/native-floats.ts";
import type { NativeContext } from "../native/native-context.ts";
import type { PredictionFunctions } from "./mtp-abi.ts";
import { StatesBatch } from "./mtp-batch.ts";
import { Trail, trailLength } from "./mtp-trail.ts";

export interface HeadsParts {
  /** Of the model, and of the heads. */
  readonly target: NativeContext;
  readonly context: NativeContext;
  readonly prediction: PredictionFunctions;
  /** Whether they read the model's KV cache and have none. */
  readonly sharesMemory: boolean;
  /** Whether their weights are a file of their own. */
  readonly ownsModel: boolean;
  /** Floats of a hidden state. */
  readonly width: number;
  readonly vocabSize: number;
  readonly maxSequences: number;
  /** Most tokens of a pass of the model, and of the heads. */
  readonly batchTokens: number;
  /** Most outputs of a pass of the heads: more than sequences. */
  readonly maxOutputs: number;
}

/** Tokens with the states that they are fed with, from index `from` and row `row` on. */
interface Pairs {
  readonly tokens: Int32Array;
  readonly from: number;
  readonly states: Float32Array;
  readonly row: number;
  readonly count: number;
}

export class HeadsFeeder {
  /** The pass that is being made. */
  readonly batch: StatesBatch;
  /** 1 where tokens that are only fed are outputs of their pass, too. */
  fedOutput = 0;
  readonly #parts: HeadsParts;
  readonly #trails: readonly Trail[];
  /** By batch row: where its tokens begin in the model's pass. */
  readonly #places: Int32Array;
  readonly #states = new NativeFloats();

  constructor(parts: HeadsParts) {
    const { context, maxSequences, batchTokens, width } = parts;
    this.#parts = parts;
    this.batch = new StatesBatch(context.functions, batchTokens, width);
    this.#trails = Array.from({ length: maxSequences }, () => new Trail(width));
    this.#places = new Int32Array(maxSequences);
  }

  /** Row `row` of the step begins at token `index` of the model's pass. */
  place(row: number, index: number): void {
    this.#places[row] = index;
  }

  /** Takes in what the model's pass has computed. */
  follow(batch: Batch): void {
    const { target, prediction, batchTokens, width } = this.#parts;
    const states = this.#states.at(prediction.getStates(target.pointer), batchTokens * width);
    for (let row = 0; row < batch.rowCount; row++) if (batch.wantPooled[row] === 0) this.#followRow(batch, row, states);
    this.flush();
  }

  trailOf(slot: number): Trail {
    return this.#trails[slot] as Trail;
  }

  /** Adds what can be fed of a slot's trail to the pass. */
  catchUp(slot: number): void {
    const trail = this.trailOf(slot);
    const { tokens, states, base, count } = trail;
    this.#feed(slot, base + 1, { tokens, from: 1, states, row: 0, count: count - 1 });
    if (trail.count > 0) trail.keepLast();
  }

  /** Runs the pass if there is something in it. */
  flush(): void {
    if (this.batch.view.count > 0) this.decode();
  }

  /** Runs the pass. False where there is no room: what the heads were fed is forgotten then. */
  decode(): boolean {
    const hasRoom = this.#parts.context.tryDecode(this.batch.view);
    this.batch.view.clear();
    if (!hasRoom) for (let slot = 0; slot < this.#trails.length; slot++) this.release(slot);
    return hasRoom;
  }

  /** Drops what was fed of a native sequence from position `from` on; -1 for all. */
  remove(id: number, from: number): void {
    if (!this.#parts.sharesMemory) this.#parts.context.remove(id, from);
  }

  release(slot: number): void {
    this.remove(slot, -1);
    this.trailOf(slot).forget();
  }

  /** What `from` was fed of its first `tokens` tokens is shared with the empty slot `to`. */
  copyPrefix(from: number, to: number, tokens: number): void {
    const held = this.save(from, to);
    this.#resume(to, Math.min(held, tokens), tokens);
  }

  /** Shares what a slot was fed with the native sequence `id`. Returns how many of its first tokens that are. */
  save(slot: number, id: number): number {
    const trail = this.trailOf(slot);
    if (trail.count === 0 || this.#parts.sharesMemory) return 0;
    this.catchUp(slot);
    this.flush();
    const tokens = trail.base + 1;
    if (tokens > 0) this.#parts.context.share(slot, id, tokens);
    return tokens;
  }

  /** Shares the first `held` tokens that the native sequence `id` was fed with an empty slot that has `tokens` of them. */
  restore(slot: number, id: number, held: number, tokens: number): void {
    this.#parts.context.share(id, slot, held);
    this.#resume(slot, held, tokens);
  }

  drop(id: number): void {
    this.remove(id, -1);
  }

  /** `held` of a slot's first `tokens` tokens are there: a gap must not be left. */
  #resume(slot: number, held: number, tokens: number): void {
    if (held >= tokens) {
      this.remove(slot, tokens);
      this.trailOf(slot).begin(tokens);
    } else {
      this.release(slot);
    }
  }

  #followRow(batch: Batch, row: number, states: Float32Array): void {
    const slot = at(batch.slot, row);
    const start = at(batch.position, row);
    const length = at(batch.length, row);
    const offset = at(batch.offset, row);
    const place = at(this.#places, row);
    const trail = this.trailOf(slot);
    if (trail.reaches(start)) trail.cut(start);
    else this.#begin(slot, start);
    if (trail.hasRoom(length)) {
      trail.append(batch.tokens, offset, states, place, length);
      return;
    }
    // Tokens whose logits are wanted may be replaced, all but the first of them.
    const kept = Math.min(Math.max(at(batch.logitsCount, row), 1), trailLength, length);
    const settled = length - kept;
    this.catchUp(slot);
    this.#feed(slot, start, { tokens: batch.tokens, from: offset, states: trail.states, row: 0, count: 1 });
    this.#feed(slot, start + 1, { tokens: batch.tokens, from: offset + 1, states, row: place, count: settled });
    trail.base = start + settled;
    trail.count = 0;
    trail.append(batch.tokens, offset + settled, states, place + settled, kept);
  }

  /** Follows a slot from `position` on, whatever was before. */
  #begin(slot: number, position: number): void {
    const trail = this.trailOf(slot);
    const isCut = trail.count > 0 && position <= trail.base;
    this.remove(slot, isCut ? position : -1);
    trail.begin(position);
  }

  #feed(slot: number, position: number, { tokens, from, states, row, count }: Pairs): void {
    if (this.#parts.sharesMemory) return;
    for (let done = 0; done < count; ) {
      if (this.batch.room === 0) this.flush();
      const more = Math.min(this.batch.room, count - done);
      this.batch.setStates(states, row + done, more);
      for (let i = 0; i < more; i++) {
        this.batch.view.add(at(tokens, from + done + i), position + done + i, slot, this.fedOutput);
      }
      done += more;
    }
  }
}

/** Element of a typed array at an index the caller knows to be inside. */
function at(array: Int32Array, index: number): number {
  return array[index] as number;
}
