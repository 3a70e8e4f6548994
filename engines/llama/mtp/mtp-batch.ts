// MTP batch: a native batch whose tokens each carry a hidden state.
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
    // Separate memory outside the heap, which does not move.
    this.#states = new Float32Array(new ArrayBuffer(maxTokens * width * Float32Array.BYTES_PER_ELEMENT));
    this.view.batch.embd = koffi.address(this.#states);
  }

  get room(): number {
    return this.#maxTokens - this.view.count;
  }

  /** Sets the states of the next `count` tokens: rows of `states` from `row` on. Call before the tokens are added. */
  setStates(states: Float32Array, row: number, count: number): void {
    const width = this.#width;
    this.#states.set(states.subarray(row * width, (row + count) * width), this.view.count * width);
  }

  free(functions: LlamaFunctions): void {
    // The memory is not the native side's to free.
    this.view.batch.embd = null;
    this.view.free(functions);
  }
}
