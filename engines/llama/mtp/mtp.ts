// MTP drafting with heads run by llama.cpp. From the newest token and the hidden state of the token before it, a head
// computes the next token and a new state; from that token and state it computes the next draft token. Called by the
// drafter. mtp-feeder.ts tracks which tokens the heads have been fed.
import type { DraftTarget, MtpHeads } from "../../engine.ts";
import { NativeFloats } from "../native/memory/native-floats.ts";
import { HeadsFeeder, type HeadsParts } from "./mtp-feeder.ts";

export class LlamaHeads implements MtpHeads {
  readonly trainedTokens: number;
  readonly feeder: HeadsFeeder;
  readonly #parts: HeadsParts;
  /** `#drafting`: indices of the targets (sequences) in the current drafting pass. `#rows`: output row of each of these targets. */
  readonly #drafting: Int32Array;
  readonly #rows: Int32Array;
  readonly #states = new NativeFloats();
  readonly #logits = new NativeFloats();

  constructor(parts: HeadsParts, trainedTokens: number) {
    this.#parts = parts;
    this.trainedTokens = trainedTokens;
    this.feeder = new HeadsFeeder(parts);
    this.#drafting = new Int32Array(parts.maxSequences);
    this.#rows = new Int32Array(parts.maxSequences);
  }

  follows(slot: number, total: number): boolean {
    return this.feeder.trailOf(slot).reaches(total - 1);
  }

  propose<T extends DraftTarget>(
    targets: readonly T[],
    depths: Int32Array,
    choose: (target: T, logits: Float32Array, row: number) => number,
  ): void {
    this.#catchUpAll(targets, depths);
    let drafting = this.#addNewest(targets, depths);
    while (drafting > 0 && this.feeder.decode()) drafting = this.#choose(targets, depths, drafting, choose);
    // Removes the drafted tokens and the newest token from the MTP context. The next step adds the newest token to the
    // trail (mtp-trail.ts), so that token is fed again later.
    for (const { slot, total } of targets) if (this.follows(slot, total)) this.feeder.remove(slot, total - 1);
  }

  /** Frees the MTP context. Call before the model is disposed. */
  dispose(): void {
    const { context, ownsModel } = this.#parts;
    this.feeder.batch.free(context.functions);
    context.free();
    if (ownsModel) context.functions.modelFree(context.model);
  }

  /**
   * Feeds the waiting tokens of all targets (sequences to draft for). If every token of the first drafting pass can have
   * an output, that pass also contains the waiting tokens. Otherwise, an earlier pass without outputs contains the waiting
   * tokens, because some architectures return wrong states for a pass in which only some tokens have outputs.
   */
  #catchUpAll(targets: readonly DraftTarget[], depths: Int32Array): void {
    let pending = 0;
    for (let i = 0; i < targets.length; i++) {
      const target = targets[i] as DraftTarget;
      const trail = this.feeder.trailOf(target.slot);
      target.draftCount = 0;
      if (at(depths, i) === 0 || !trail.reaches(target.total - 1)) continue;
      trail.cut(target.total - 1);
      pending += trail.count;
      // Removes rejected drafts from the model's KV cache, because the MTP model reads that cache.
      if (this.#parts.sharesMemory) this.#parts.target.remove(target.slot, target.total - 1);
    }
    const joins = pending <= Math.min(this.#parts.maxOutputs, this.feeder.batch.room);
    this.feeder.fedOutput = joins ? 1 : 0;
    for (let i = 0; i < targets.length; i++) {
      const { slot, total } = targets[i] as DraftTarget;
      if (at(depths, i) > 0 && this.follows(slot, total)) this.feeder.catchUp(slot);
    }
    this.feeder.fedOutput = 0;
    if (!joins) this.feeder.flush();
  }

  /** Adds the newest token of each target to the MTP pass. Returns the number of targets added. */
  #addNewest(targets: readonly DraftTarget[], depths: Int32Array): number {
    let drafting = 0;
    for (let i = 0; i < targets.length; i++) {
      const { slot, total, tokens } = targets[i] as DraftTarget;
      if (at(depths, i) === 0 || !this.follows(slot, total)) continue;
      this.feeder.batch.setStates(this.feeder.trailOf(slot).states, 0, 1);
      this.#rows[drafting] = this.feeder.batch.view.count;
      this.feeder.batch.view.add(at(tokens, total - 1), total - 1, slot, 1);
      this.#drafting[drafting++] = i;
    }
    return drafting;
  }

  /**
   * Chooses the drafted tokens from the outputs of a pass, and builds the next pass. Returns the number of targets in
   * the next pass.
   */
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
      this.feeder.batch.setStates(states, row, 1);
      // An MTP model that reads the main model's KV cache uses the position at the end of that cache for all draft tokens.
      const position = target.total - 1 + (sharesMemory ? 0 : target.draftCount);
      this.#rows[drafting] = this.feeder.batch.view.count;
      this.feeder.batch.view.add(token, position, target.slot, 1);
      this.#drafting[drafting++] = index;
    }
    return drafting;
  }
}

/** Returns an element of a typed array at an index known to be in bounds. */
function at(array: Int32Array, index: number): number {
  return array[index] as number;
}
