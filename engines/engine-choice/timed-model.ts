// Timed model: an excerpt loaded in one engine, on which a trial runs its workloads.
import { performance } from "node:perf_hooks";
import { Batch } from "../batch.ts";
import type { LoadedModel } from "../engine.ts";
import type { TimedEngine } from "./rounds.ts";
import { trialBatchTokens, trialContext, trialSequences, type Workload } from "./workloads.ts";

export class TimedModel implements TimedEngine {
  readonly #model: LoadedModel;
  readonly #batch = new Batch(trialSequences, trialBatchTokens);
  readonly #tokens: Int32Array;
  /** Number of tokens in the sequence of each slot. */
  readonly #held = new Int32Array(trialSequences);

  constructor(model: LoadedModel, vocabSize: number) {
    this.#model = model;
    this.#tokens = Int32Array.from({ length: trialContext }, (_, i) => (i * 7919) % vocabSize);
  }

  get generates(): boolean {
    return this.#model.capabilities.generates;
  }

  /** Maximum length of a sequence in tokens. */
  get context(): number {
    return Math.min(trialContext, this.#model.capacity.sequenceTokens);
  }

  get weightBytes(): number {
    return this.#model.card.weightBytes;
  }

  /** Returns the milliseconds of the shortest step. */
  run(workload: Workload): number {
    this.#makeRoom(workload);
    rest();
    // Runs an unmeasured decode step first, because it wakes the engine's threads.
    if (workload.tokensPerRow === 1) this.#step(workload);
    let shortestMs = Number.POSITIVE_INFINITY;
    for (let step = 0; step < workload.steps; step++) {
      const startMs = performance.now();
      this.#step(workload);
      shortestMs = Math.min(shortestMs, performance.now() - startMs);
    }
    return shortestMs;
  }

  /** Empties the slots that have too little room for the workload; a prompt always starts in an empty slot. */
  #makeRoom({ rows, tokensPerRow, steps }: Workload): void {
    for (let slot = 0; slot < rows; slot++) {
      const held = this.#held[slot] as number;
      if (held === 0 || (tokensPerRow === 1 && held + steps + 1 <= this.context)) continue;
      this.#model.kv.release(slot);
      this.#held[slot] = 0;
    }
  }

  #step({ rows, tokensPerRow }: Workload): void {
    const batch = this.#batch;
    batch.clear();
    for (let slot = 0; slot < rows; slot++) {
      const from = this.#held[slot] as number;
      const to = from + tokensPerRow;
      if (!this.#model.kv.reserve(slot, to)) throw new Error(`no KV memory for ${to} tokens of sequence ${slot}`);
      const row = batch.addRow(slot, this.#tokens, from, to, this.generates ? 1 : 0, 0);
      if (!this.generates) batch.wantPooled[row] = 1;
      this.#held[slot] = to;
    }
    this.#model.step(batch);
  }
}

/**
 * Pause before each measurement, in milliseconds. After a pass, the wasm engine's threads spin for about 0.2 ms before
 * they sleep (thread-group.ts). During that time they would slow down the llama engine.
 */
const restMs = 4;
const never = new Int32Array(new SharedArrayBuffer(4));

function rest(): void {
  Atomics.wait(never, 0, 0, restMs);
}
