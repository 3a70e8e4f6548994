// MTP feeder: feeds the MTP heads after each step with what the model computed, pairs of a token's hidden state and the
// token behind it. Called by the model, its KV cache and mtp.ts; native sequence ids are slots. MTP heads have cells in
// a context of their own, or read the model's (an assistant that shares its memory): then nothing is fed or removed.
import type { Batch } from "../../batch.ts";
import { NativeFloats } from "../native/memory/native-floats.ts";
import type { NativeContext } from "../native/native-context.ts";
import type { PredictionFunctions } from "./mtp-abi.ts";
import { StatesBatch } from "./mtp-batch.ts";
import { Trail, trailLength } from "./mtp-trail.ts";

export interface HeadsParts {
  /** Contexts of the model, and of the MTP heads. */
  readonly target: NativeContext;
  readonly context: NativeContext;
  readonly prediction: PredictionFunctions;
  /** The MTP heads read the model's KV cache and have none. */
  readonly sharesMemory: boolean;
  /** The MTP weights are a separate file. */
  readonly ownsModel: boolean;
  /** Floats of a hidden state. */
  readonly width: number;
  readonly vocabSize: number;
  readonly maxSequences: number;
  /** Most tokens of a pass, of the model and of the MTP heads. */
  readonly batchTokens: number;
  /** Most outputs of an MTP pass; more than sequences. */
  readonly maxOutputs: number;
}

/** Tokens and their states, from token index `from` and state row `row` on. */
interface Pairs {
  readonly tokens: Int32Array;
  readonly from: number;
  readonly states: Float32Array;
  readonly row: number;
  readonly count: number;
}

export class HeadsFeeder {
  /** The MTP pass under construction. */
  readonly batch: StatesBatch;
  /** 1: tokens that are only fed are also outputs of their pass. */
  fedOutput = 0;
  readonly #parts: HeadsParts;
  readonly #trails: readonly Trail[];
  /** By batch row: index of its first token in the model's pass. */
  readonly #places: Int32Array;
  readonly #states = new NativeFloats();

  constructor(parts: HeadsParts) {
    const { context, maxSequences, batchTokens, width } = parts;
    this.#parts = parts;
    this.batch = new StatesBatch(context.functions, batchTokens, width);
    this.#trails = Array.from({ length: maxSequences }, () => new Trail(width));
    this.#places = new Int32Array(maxSequences);
  }

  /** Records that row `row` of the step begins at token `index` of the model's pass. */
  place(row: number, index: number): void {
    this.#places[row] = index;
  }

  /** Reads the results of the model's pass. */
  follow(batch: Batch): void {
    const { target, prediction, batchTokens, width } = this.#parts;
    const states = this.#states.at(prediction.getStates(target.pointer), batchTokens * width);
    for (let row = 0; row < batch.rowCount; row++) if (batch.wantPooled[row] === 0) this.#followRow(batch, row, states);
    this.flush();
  }

  trailOf(slot: number): Trail {
    return this.#trails[slot] as Trail;
  }

  /** Adds the pending tokens of a slot's trail to the pass. */
  catchUp(slot: number): void {
    const trail = this.trailOf(slot);
    const { tokens, states, base, count } = trail;
    this.#feed(slot, base + 1, { tokens, from: 1, states, row: 0, count: count - 1 });
    if (trail.count > 0) trail.keepLast();
  }

  /** Runs the pass if it is not empty. */
  flush(): void {
    if (this.batch.view.count > 0) this.decode();
  }

  /** Runs the pass. Returns false if there is no room; all that the MTP heads were fed is dropped then. */
  decode(): boolean {
    const hasRoom = this.#parts.context.tryDecode(this.batch.view);
    this.batch.view.clear();
    if (!hasRoom) for (let slot = 0; slot < this.#trails.length; slot++) this.release(slot);
    return hasRoom;
  }

  /** Drops the tokens of a native sequence from position `from` on; -1: of all sequences. */
  remove(id: number, from: number): void {
    if (!this.#parts.sharesMemory) this.#parts.context.remove(id, from);
  }

  release(slot: number): void {
    this.remove(slot, -1);
    this.trailOf(slot).forget();
  }

  /** Shares the first `tokens` tokens fed of `from` with the empty slot `to`. */
  copyPrefix(from: number, to: number, tokens: number): void {
    const held = this.save(from, to);
    this.#resume(to, Math.min(held, tokens), tokens);
  }

  /** Shares the tokens fed of a slot with the native sequence `id`. Returns their number. */
  save(slot: number, id: number): number {
    const trail = this.trailOf(slot);
    if (trail.count === 0 || this.#parts.sharesMemory) return 0;
    this.catchUp(slot);
    this.flush();
    const tokens = trail.base + 1;
    if (tokens > 0) this.#parts.context.share(slot, id, tokens);
    return tokens;
  }

  /** Shares the first `held` tokens fed of the native sequence `id` with an empty slot of `tokens` tokens. */
  restore(slot: number, id: number, held: number, tokens: number): void {
    this.#parts.context.share(id, slot, held);
    this.#resume(slot, held, tokens);
  }

  drop(id: number): void {
    this.remove(id, -1);
  }

  /** Continues a slot of `tokens` tokens of which the first `held` were fed. The fed tokens must have no gap. */
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
    // Of a row with several logits, all tokens but the first may be replaced.
    const kept = Math.min(Math.max(at(batch.logitsCount, row), 1), trailLength, length);
    const settled = length - kept;
    this.catchUp(slot);
    this.#feed(slot, start, { tokens: batch.tokens, from: offset, states: trail.states, row: 0, count: 1 });
    this.#feed(slot, start + 1, { tokens: batch.tokens, from: offset + 1, states, row: place, count: settled });
    trail.base = start + settled;
    trail.count = 0;
    trail.append(batch.tokens, offset + settled, states, place + settled, kept);
  }

  /** Starts following a slot at `position`, and drops its earlier trail. */
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

/** Element of a typed array at an index known to be in bounds. */
function at(array: Int32Array, index: number): number {
  return array[index] as number;
}
