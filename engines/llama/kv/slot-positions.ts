// Slot positions (M-RoPE): the position in time of each token that a slot holds. All embeddings of an image have one
// position, so positions are lower than the tokens' indices after an image. llama.cpp drops and shares the tokens of a
// sequence by position. Only models with M-RoPE have slot positions; for all others, positions are indices.
import assert from "node:assert/strict";
import type { Batch } from "../../batch.ts";

export class SlotPositions {
  /** Positions of the tokens of each slot; longer than the slot's number of tokens. */
  readonly #bySlot: Int32Array[];
  /** Number of tokens of each slot whose positions are known. */
  readonly #held: Int32Array;

  constructor(slots: number) {
    this.#bySlot = Array.from({ length: slots }, () => new Int32Array(0));
    this.#held = new Int32Array(slots);
  }

  /** Records the tokens of a batch that has been fed. */
  record(batch: Batch): void {
    for (let row = 0; row < batch.rowCount; row++) {
      const slot = batch.slot[row] as number;
      const from = batch.position[row] as number;
      const length = batch.length[row] as number;
      const positions = this.#grown(slot, from + length);
      for (let i = 0; i < length; i++) positions[from + i] = batch.coordinate(row, i, 0);
    }
  }

  /** Returns the positions of the first `tokens` tokens of a slot. */
  copy(slot: number, tokens: number): Int32Array {
    return (this.#bySlot[slot] as Int32Array).slice(0, tokens);
  }

  /** Sets the positions of the first tokens of a slot. */
  set(slot: number, positions: Int32Array): void {
    this.#grown(slot, positions.length).set(positions);
  }

  /**
   * Returns the position after the first `tokens` tokens of a slot: llama.cpp keeps these if it drops all from that position
   * on. Further tokens must not be of the same image. They never are, because prompts either have an image in common or
   * differ at its first token.
   */
  end(slot: number, tokens: number): number {
    if (tokens === 0) return 0;
    const positions = this.#bySlot[slot] as Int32Array;
    const end = (positions[tokens - 1] as number) + 1;
    const isWithin = tokens < (this.#held[slot] as number) && (positions[tokens] as number) < end;
    assert.ok(!isWithin, `the first ${tokens} tokens of slot ${slot} end within an image`);
    return end;
  }

  #grown(slot: number, tokens: number): Int32Array {
    this.#held[slot] = tokens;
    const positions = this.#bySlot[slot] as Int32Array;
    if (positions.length >= tokens) return positions;
    const grown = new Int32Array(Math.max(tokens, 2 * positions.length));
    grown.set(positions);
    this.#bySlot[slot] = grown;
    return grown;
  }
}
