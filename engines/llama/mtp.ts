// Owns prediction heads that llama.cpp runs: after each step they are fed what it computed, pairs of a token's hidden state
// and the token behind it, and drafts are made by feeding them their own states. The model and its KV cache call it.
// Heads have cells of their own, or read the model's (an assistant that shares its memory): then nothing is fed or removed.
import type { Batch } from "../batch.ts";
import type { DraftHeads, DraftTarget } from "../engine.ts";
import type { PredictionFunctions } from "./mtp-abi.ts";
import { StatesBatch } from "./mtp-batch.ts";
import { Trail, trailLength } from "./mtp-trail.ts";
import type { NativeContext } from "./native-context.ts";
import { NativeFloats } from "./native-floats.ts";

export interface HeadsParts {
  /** Of the model, and of the heads: native sequence ids are slots in both. */
  readonly target: NativeContext;
  readonly context: NativeContext;
  readonly prediction: PredictionFunctions;
  readonly trainedTokens: number;
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

export class LlamaHeads implements DraftHeads {
  readonly trainedTokens: number;
  readonly #parts: HeadsParts;
  readonly #batch: StatesBatch;
  readonly #trails: readonly Trail[];
  /** By batch row: where its tokens begin in the model's pass. */
  readonly #places: Int32Array;
  /** The targets that the running pass drafts for, and their rows among its outputs. */
  readonly #drafting: Int32Array;
  readonly #rows: Int32Array;
  /** Whether tokens that are only fed are outputs, too. */
  #isAllOutput = 0;
  readonly #targetStates = new NativeFloats();
  readonly #states = new NativeFloats();
  readonly #logits = new NativeFloats();

  constructor(parts: HeadsParts) {
    const { context, maxSequences, batchTokens, width, trainedTokens } = parts;
    this.#parts = parts;
    this.trainedTokens = trainedTokens;
    this.#batch = new StatesBatch(context.functions, batchTokens, width);
    this.#trails = Array.from({ length: maxSequences }, () => new Trail(width));
    this.#places = new Int32Array(maxSequences);
    this.#drafting = new Int32Array(maxSequences);
    this.#rows = new Int32Array(maxSequences);
  }

  /** Row `row` of the step begins at token `index` of the model's pass. */
  place(row: number, index: number): void {
    this.#places[row] = index;
  }

  /** Takes in what the model's pass has computed. */
  follow(batch: Batch): void {
    const { target, prediction, batchTokens, width } = this.#parts;
    const states = this.#targetStates.at(prediction.getStates(target.pointer), batchTokens * width);
    for (let row = 0; row < batch.rowCount; row++) if (batch.wantPooled[row] === 0) this.#followRow(batch, row, states);
    this.#flush();
  }

  follows(slot: number, total: number): boolean {
    return this.#trailOf(slot).reaches(total - 1);
  }

  propose<T extends DraftTarget>(
    targets: readonly T[],
    depths: Int32Array,
    choose: (target: T, logits: Float32Array, row: number) => number,
  ): void {
    this.#catchUpAll(targets, depths);
    let drafting = this.#addNewest(targets, depths);
    while (drafting > 0 && this.#decode()) drafting = this.#choose(targets, depths, drafting, choose);
    // The newest token is fed again, as its place is that of the pair the next step completes.
    for (const { slot, total } of targets) if (this.follows(slot, total)) this.#remove(slot, total - 1);
  }

  release(slot: number): void {
    this.#remove(slot, -1);
    this.#trailOf(slot).forget();
  }

  /** What `from` was fed of its first `tokens` tokens is shared with the empty slot `to`. */
  copyPrefix(from: number, to: number, tokens: number): void {
    const held = this.save(from, to);
    this.#resume(to, Math.min(held, tokens), tokens);
  }

  /** Shares what a slot was fed with the native sequence `id`. Returns how many of its first tokens that are. */
  save(slot: number, id: number): number {
    const trail = this.#trailOf(slot);
    if (trail.count === 0 || this.#parts.sharesMemory) return 0;
    this.#catchUp(slot);
    this.#flush();
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
    this.#remove(id, -1);
  }

  /** To be called before the model is disposed. */
  dispose(): void {
    const { context, ownsModel } = this.#parts;
    this.#batch.free(context.functions);
    context.free();
    if (ownsModel) context.functions.modelFree(context.model);
  }

  /** `held` of a slot's first `tokens` tokens are there: a gap must not be left. */
  #resume(slot: number, held: number, tokens: number): void {
    if (held >= tokens) {
      this.#remove(slot, tokens);
      this.#trailOf(slot).begin(tokens);
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
    const trail = this.#trailOf(slot);
    if (trail.reaches(start)) trail.cut(start);
    else this.#begin(slot, start);
    if (trail.hasRoom(length)) {
      trail.append(batch.tokens, offset, states, place, length);
      return;
    }
    // Tokens whose logits are wanted may be replaced, all but the first of them.
    const kept = Math.min(Math.max(at(batch.logitsCount, row), 1), trailLength, length);
    const settled = length - kept;
    this.#catchUp(slot);
    this.#feed(slot, start, { tokens: batch.tokens, from: offset, states: trail.states, row: 0, count: 1 });
    this.#feed(slot, start + 1, { tokens: batch.tokens, from: offset + 1, states, row: place, count: settled });
    trail.base = start + settled;
    trail.count = 0;
    trail.append(batch.tokens, offset + settled, states, place + settled, kept);
  }

  /** Follows a slot from `position` on, whatever was before. */
  #begin(slot: number, position: number): void {
    const trail = this.#trailOf(slot);
    const isCut = trail.count > 0 && position <= trail.base;
    this.#remove(slot, isCut ? position : -1);
    trail.begin(position);
  }

  /** Adds what can be fed of a slot's trail to the pass. */
  #catchUp(slot: number): void {
    const trail = this.#trailOf(slot);
    const { tokens, states, base, count } = trail;
    this.#feed(slot, base + 1, { tokens, from: 1, states, row: 0, count: count - 1 });
    if (trail.count > 0) trail.keepLast();
  }

  /**
   * Adds what the targets' trails have. It joins the first drafting pass where all of it can be output: of a pass with other
   * tokens some architectures give the states of its first ones.
   */
  #catchUpAll(targets: readonly DraftTarget[], depths: Int32Array): void {
    let pending = 0;
    for (let i = 0; i < targets.length; i++) {
      const target = targets[i] as DraftTarget;
      const trail = this.#trailOf(target.slot);
      target.draftCount = 0;
      if (at(depths, i) === 0 || !trail.reaches(target.total - 1)) continue;
      trail.cut(target.total - 1);
      pending += trail.count;
      // What reads the model's cache must not find drafts there that were wrong.
      if (this.#parts.sharesMemory) this.#parts.target.remove(target.slot, target.total - 1);
    }
    const joins = pending <= Math.min(this.#parts.maxOutputs, this.#batch.room);
    this.#isAllOutput = joins ? 1 : 0;
    for (let i = 0; i < targets.length; i++) {
      const { slot, total } = targets[i] as DraftTarget;
      if (at(depths, i) > 0 && this.follows(slot, total)) this.#catchUp(slot);
    }
    this.#isAllOutput = 0;
    if (!joins) this.#flush();
  }

  /** Adds the newest token of each target to the pass. Returns how many there are. */
  #addNewest(targets: readonly DraftTarget[], depths: Int32Array): number {
    let drafting = 0;
    for (let i = 0; i < targets.length; i++) {
      const { slot, total, tokens } = targets[i] as DraftTarget;
      if (at(depths, i) === 0 || !this.follows(slot, total)) continue;
      this.#batch.setStates(this.#trailOf(slot).states, 0, 1);
      this.#rows[drafting] = this.#batch.view.count;
      this.#batch.view.add(at(tokens, total - 1), total - 1, slot, 1);
      this.#drafting[drafting++] = i;
    }
    return drafting;
  }

  /** Takes the drafted tokens of a pass, and makes the next one. Returns how many go on. */
  #choose<T extends DraftTarget>(
    targets: readonly T[],
    depths: Int32Array,
    count: number,
    choose: (target: T, logits: Float32Array, row: number) => number,
  ): number {
    const { context, prediction, vocabSize, width, sharesMemory } = this.#parts;
    const outputs = at(this.#rows, count - 1) + 1;
    const logits = this.#logits.at(context.logitsPointer(), outputs * vocabSize);
    const states = this.#states.at(prediction.getStates(context.pointer), outputs * width);
    let drafting = 0;
    for (let i = 0; i < count; i++) {
      const index = at(this.#drafting, i);
      const row = at(this.#rows, i);
      const target = targets[index] as T;
      const token = choose(target, logits, row);
      if (token < 0) continue;
      (target.draft as Int32Array)[target.draftCount++] = token;
      if (target.draftCount >= at(depths, index)) continue;
      this.#batch.setStates(states, row, 1);
      // Who reads the model's cache asks from where that ends, whatever the token.
      const position = target.total - 1 + (sharesMemory ? 0 : target.draftCount);
      this.#rows[drafting] = this.#batch.view.count;
      this.#batch.view.add(token, position, target.slot, 1);
      this.#drafting[drafting++] = index;
    }
    return drafting;
  }

  #feed(slot: number, position: number, { tokens, from, states, row, count }: Pairs): void {
    if (this.#parts.sharesMemory) return;
    for (let done = 0; done < count; ) {
      if (this.#batch.room === 0) this.#flush();
      const more = Math.min(this.#batch.room, count - done);
      this.#batch.setStates(states, row + done, more);
      for (let i = 0; i < more; i++) {
        this.#batch.view.add(at(tokens, from + done + i), position + done + i, slot, this.#isAllOutput);
      }
      done += more;
    }
  }

  #flush(): void {
    if (this.#batch.view.count > 0) this.#decode();
  }

  /** Runs the pass. False where there is no room: what the heads were fed is forgotten then. */
  #decode(): boolean {
    const hasRoom = this.#parts.context.tryDecode(this.#batch.view);
    this.#batch.view.clear();
    if (!hasRoom) for (let slot = 0; slot < this.#trails.length; slot++) this.release(slot);
    return hasRoom;
  }

  #remove(id: number, from: number): void {
    if (!this.#parts.sharesMemory) this.#parts.context.remove(id, from);
  }

  #trailOf(slot: number): Trail {
    return this.#trails[slot] as Trail;
  }
}

/** Element of a typed array at an index the caller knows to be inside. */
function at(array: Int32Array, index: number): number {
  return array[index] as number;
}
