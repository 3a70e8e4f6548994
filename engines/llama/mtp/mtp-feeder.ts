// MTP feeder: after each step of the model, feeds the MTP heads with pairs of a token's hidden state and the token
// after it. Called by the model, its KV cache and mtp.ts. In the MTP context, a slot number is the native sequence id.
// The heads normally have their own KV cache. An assistant (a separate model whose layers form the head) may read the
// KV cache of the main model instead; this class then feeds and removes nothing.
import type { Batch } from "../../batch.ts";
import { NativeFloats } from "../native/memory/native-floats.ts";
import type { NativeContext } from "../native/native-context.ts";
import type { PredictionFunctions } from "./mtp-abi.ts";
import { StatesBatch } from "./mtp-batch.ts";
import { Trail, trailLength } from "./mtp-trail.ts";

export interface HeadsParts {
  /** `target`: context of the model. `context`: context of the MTP heads. */
  readonly target: NativeContext;
  readonly context: NativeContext;
  readonly prediction: PredictionFunctions;
  /** Whether the MTP heads read the model's KV cache instead of having their own. */
  readonly sharesMemory: boolean;
  /** Whether the MTP weights come from a separate file. The weights are then a separate model, which must be freed. */
  readonly ownsModel: boolean;
  /** Number of floats in a hidden state. */
  readonly width: number;
  readonly vocabSize: number;
  readonly maxSequences: number;
  /** Maximum number of tokens in a pass, both of the model and of the MTP heads. */
  readonly batchTokens: number;
  /** Maximum number of outputs in an MTP pass; larger than the number of sequences. */
  readonly maxOutputs: number;
}

/**
 * Tokens and their hidden states. The tokens begin at index `from` of `tokens`, the states at row `row` of `states`.
 */
interface Pairs {
  readonly tokens: Int32Array;
  readonly from: number;
  readonly states: Float32Array;
  readonly row: number;
  readonly count: number;
}

export class HeadsFeeder {
  /** Tokens of the next MTP pass. */
  readonly batch: StatesBatch;
  /**
   * 1: the tokens of a trail (mtp-trail.ts) also get an output in their MTP pass, although they are fed only as
   * context. 0: they get no output.
   */
  fedOutput = 0;
  readonly #parts: HeadsParts;
  readonly #trails: readonly Trail[];
  /** Index of each batch row's first token in the model's pass. */
  readonly #places: Int32Array;
  readonly #states = new NativeFloats();

  constructor(parts: HeadsParts) {
    const { context, maxSequences, batchTokens, width } = parts;
    this.#parts = parts;
    this.batch = new StatesBatch(context.functions, batchTokens, width);
    this.#trails = Array.from({ length: maxSequences }, () => new Trail(width));
    this.#places = new Int32Array(maxSequences);
  }

  /** Records that the tokens of batch row `row` begin at token `index` of the model's pass. */
  place(row: number, index: number): void {
    this.#places[row] = index;
  }

  /** Reads the hidden states of the model's pass and feeds the MTP heads with them. */
  follow(batch: Batch): void {
    const { target, prediction, batchTokens, width } = this.#parts;
    const states = this.#states.at(prediction.getStates(target.pointer), batchTokens * width);
    for (let row = 0; row < batch.rowCount; row++) if (batch.wantPooled[row] === 0) this.#followRow(batch, row, states);
    this.flush();
  }

  trailOf(slot: number): Trail {
    return this.#trails[slot] as Trail;
  }

  /** Adds the waiting tokens of a slot (its trail) to the MTP pass. */
  catchUp(slot: number): void {
    const trail = this.trailOf(slot);
    const { tokens, states, base, count } = trail;
    this.#feed(slot, base + 1, { tokens, from: 1, states, row: 0, count: count - 1 });
    if (trail.count > 0) trail.keepLast();
  }

  /** Runs the MTP pass unless it is empty. */
  flush(): void {
    if (this.batch.view.count > 0) this.decode();
  }

  /**
   * Runs the MTP pass. If no KV cell is free, returns false and drops all tokens that the MTP heads have been fed.
   */
  decode(): boolean {
    const hasRoom = this.#parts.context.tryDecode(this.batch.view);
    this.batch.view.clear();
    if (!hasRoom) for (let slot = 0; slot < this.#trails.length; slot++) this.release(slot);
    return hasRoom;
  }

  /** Drops the tokens of a native sequence from position `from` on; -1: all its tokens. */
  remove(id: number, from: number): void {
    if (!this.#parts.sharesMemory) this.#parts.context.remove(id, from);
  }

  release(slot: number): void {
    this.remove(slot, -1);
    this.trailOf(slot).forget();
  }

  /**
   * Lets the empty slot `to` share the tokens of slot `from` that the MTP heads have been fed, at most the first
   * `tokens`.
   */
  copyPrefix(from: number, to: number, tokens: number): void {
    const held = this.save(from, to);
    this.#resume(to, Math.min(held, tokens), tokens);
  }

  /**
   * Lets the native sequence `id` share the tokens of a slot that the MTP heads have been fed. Returns their number.
   */
  save(slot: number, id: number): number {
    const trail = this.trailOf(slot);
    if (trail.count === 0 || this.#parts.sharesMemory) return 0;
    this.catchUp(slot);
    this.flush();
    const tokens = trail.base + 1;
    if (tokens > 0) this.#parts.context.share(slot, id, tokens);
    return tokens;
  }

  /**
   * Shares the first `held` fed tokens of the native sequence `id` with an empty slot, which will have `tokens` tokens.
   */
  restore(slot: number, id: number, held: number, tokens: number): void {
    this.#parts.context.share(id, slot, held);
    this.#resume(slot, held, tokens);
  }

  drop(id: number): void {
    this.remove(id, -1);
  }

  /**
   * Continues a slot that has `tokens` tokens, the first `held` of which have been fed to the MTP heads. If that is not
   * all of them, drops the slot's MTP context, because there must be no gap between fed tokens.
   */
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
    // If a row wants logits of several tokens, the tokens after the first of them may be drafts. Rejected drafts are
    // replaced later, so possible drafts wait in the trail.
    const kept = Math.min(Math.max(at(batch.logitsCount, row), 1), trailLength, length);
    const settled = length - kept;
    this.catchUp(slot);
    this.#feed(slot, start, { tokens: batch.tokens, from: offset, states: trail.states, row: 0, count: 1 });
    this.#feed(slot, start + 1, { tokens: batch.tokens, from: offset + 1, states, row: place, count: settled });
    trail.base = start + settled;
    trail.count = 0;
    trail.append(batch.tokens, offset + settled, states, place + settled, kept);
  }

  /** Discards a slot's trail and begins a new one at `position`. */
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

/** Returns an element of a typed array at an index known to be in bounds. */
function at(array: Int32Array, index: number): number {
  return array[index] as number;
}
