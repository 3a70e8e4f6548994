// MTP batch: a native batch in which each token has a hidden state as additional input.
import koffi from "koffi";
import type { LlamaFunctions } from "../native/abi.ts";
import { NativeBatchView } from "../native/memory/native-batch.ts";

export class StatesBatch {
  readonly view: NativeBatchView;
  readonly #width: number;
  readonly #maxTokens: number;
  readonly #states: Float32Array;

  constructor(functions: LlamaFunctions, maxTokens: number, width: number) {
    this.view = new NativeBatchView(functions, maxTokens);
    this.#width = width;
    this.#maxTokens = maxTokens;
    // The array of hidden states has its own ArrayBuffer, which lies outside the JS heap and does not move, because
    // native code keeps its address.
    this.#states = new Float32Array(new ArrayBuffer(maxTokens * width * Float32Array.BYTES_PER_ELEMENT));
    this.view.batch.embd = koffi.address(this.#states);
  }

  get room(): number {
    return this.#maxTokens - this.view.count;
  }

  /**
   * Sets the hidden states of the next `count` tokens: rows of `states` from `row` on. Call before the tokens are
   * added.
   */
  setStates(states: Float32Array, row: number, count: number): void {
    const width = this.#width;
    this.#states.set(states.subarray(row * width, (row + count) * width), this.view.count * width);
  }

  free(functions: LlamaFunctions): void {
    // The pointer to the hidden states is removed from the native batch, because llama.cpp must not free memory that
    // belongs to JS.
    this.view.batch.embd = null;
    this.view.free(functions);
  }
}
