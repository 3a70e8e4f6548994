// Slot positions (M-RoPE): the time position of each token in a slot. All embeddings of an image tile have the same time position, so
// positions after an image are lower than the tokens' indices. They are needed because llama.cpp drops and shares the tokens of a sequence
// by position. In models without M-RoPE, the position of a token is its index, and this class is not used.
import assert from "node:assert/strict";
import type { Batch } from "../../batch.ts";

export class SlotPositions {
  /** For each slot: the positions of its tokens. The arrays may be longer than the number of tokens. */
  readonly #bySlot: Int32Array[];
  /** For each slot: the number of tokens whose positions are known. */
  readonly #held: Int32Array;

  constructor(slots: number) {
    this.#bySlot = Array.from({ length: slots }, () => new Int32Array(0));
    this.#held = new Int32Array(slots);
  }

  /** Records the positions of a batch's tokens after the batch has been fed. */
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

  /** Sets the positions of a slot's first tokens, and discards all other positions. */
  set(slot: number, positions: Int32Array): void {
    this.#grown(slot, positions.length).set(positions);
  }

  /**
   * Returns the position after the first `tokens` tokens of a slot. If llama.cpp drops all tokens from that position on, it keeps exactly
   * these tokens. Throws if the next token belongs to the same image; this never happens, because two prompts either have an image in
   * common or differ at its first token.
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
