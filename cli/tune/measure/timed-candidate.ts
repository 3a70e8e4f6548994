// Timed candidate: an excerpt of the model that is loaded in one engine, and its measured speeds. The measurements use the real
// step loop: scheduler, forward pass and sampler.
import { performance } from "node:perf_hooks";
import type { TuneSpeeds } from "../../../actors/api/tuning.ts";
import { jobDefaults, rowInts, type SequenceJob, type TokenFrame } from "../../../actors/messages.ts";
import { StepLoop, type Subscriber } from "../../../actors/model/step/step-loop.ts";
import { defaultStepLimits } from "../../../engines/decoding/scheduler/limits.ts";
import type { LoadedModel } from "../../../engines/engine.ts";
import { greedySampling } from "../../../engines/generation.ts";

/** Number of sequences in the measurement of batched decode. */
export const batchedSequences = 16;
/** Maximum length in tokens of a sequence in a measurement. */
export const measuredContext = 512;
const promptTokens = 128;
/** Length in tokens of the prompts in a measurement of decode. */
const shortPromptTokens = 4;
const decodedTokens = 8;
const batchedTokens = 4;

interface Workload {
  readonly sequences: number;
  readonly promptLength: number;
  readonly newTokens: number;
}

/** Number of prompts created in this process. */
let promptCount = 0;

export class TimedCandidate {
  readonly #model: LoadedModel;
  readonly #loop: StepLoop;
  readonly #vocabSize: number;
  readonly #context: number;
  #best: TuneSpeeds | null = null;

  constructor(model: LoadedModel) {
    this.#model = model;
    this.#vocabSize = model.card.vocabSize;
    this.#context = Math.min(measuredContext, model.capacity.sequenceTokens);
    const { maxBatchTokens } = model.capacity;
    const limits = { ...defaultStepLimits, maxBatchTokens, prefixCacheEntries: 0, swapBytes: 0, maxQueue: 64 };
    const waits = { queueTimeoutMs: 0, slotShareMs: 0 };
    this.#loop = new StepLoop(model, { limits: { ...limits, ...waits }, frameIntervalMs: 0 });
  }

  /** Size of the weights in the engine's memory, divided by their size in the file. */
  get weightRatio(): number {
    return this.#model.card.weightBytes / this.#model.card.tensorBytes;
  }

  /**
   * Highest speeds so far; null before the first measurement. The highest speeds are used, because other load on the machine
   * can only make a run slower.
   */
  get speeds(): TuneSpeeds | null {
    return this.#best;
  }

  /**
   * Computes a few tokens without measuring them, because the first runs are slower: code is compiled and memory is paged in.
   */
  async warmUp(): Promise<void> {
    if (!this.#model.capabilities.generates) return void (await this.#measureEncoding());
    this.#run({ sequences: 2, promptLength: 2 * shortPromptTokens, newTokens: 1 });
  }

  /** Runs each workload once, and keeps the highest speeds. */
  async measure(): Promise<void> {
    const now = this.#model.capabilities.generates ? this.#measureGeneration() : await this.#measureEncoding();
    const best = this.#best ?? now;
    const higher = (one: number | null, other: number | null) =>
      one === null || other === null ? null : Math.max(one, other);
    this.#best = {
      prompt: Math.max(best.prompt, now.prompt),
      decode: higher(best.decode, now.decode),
      batchedDecode: higher(best.batchedDecode, now.batchedDecode),
    };
  }

  dispose(): void {
    this.#model.dispose();
  }

  #measureGeneration(): TuneSpeeds {
    const promptLength = Math.min(promptTokens, Math.floor(this.#context / 2));
    const sequences = Math.min(batchedSequences, this.#model.capacity.maxSequences);
    const short = { promptLength: shortPromptTokens };
    return {
      prompt: this.#run({ sequences: 1, promptLength, newTokens: 0 }),
      decode: this.#run({ sequences: 1, ...short, newTokens: decodedTokens }),
      batchedDecode: this.#run({ sequences, ...short, newTokens: batchedTokens }),
    };
  }

  /** Runs a workload. Returns its prompt tokens per second if it has no new tokens, else its new tokens per second. */
  #run({ sequences, promptLength, newTokens }: Workload): number {
    const loop = this.#loop;
    const counter = new TokenCounter();
    const jobs = Array.from({ length: sequences }, (_, id) => this.#job(id, promptLength, newTokens));
    loop.submit(counter, jobs);
    if (newTokens > 0) while (counter.begun.size < sequences && loop.step());
    const before = counter.tokens;
    const startMs = performance.now();
    while (loop.step());
    const ms = performance.now() - startMs;
    loop.drop(counter);
    const tokens = newTokens === 0 ? sequences * promptLength : counter.tokens - before;
    return (tokens * 1000) / ms;
  }

  async #measureEncoding(): Promise<TuneSpeeds> {
    const loop = this.#loop;
    const counter = new TokenCounter();
    const length = Math.min(promptTokens, this.#context);
    const prompts = [this.#prompt(length)];
    const startMs = performance.now();
    const pooled = loop.pool(counter, {
      id: 0,
      job: { prompts, adapter: 0, priority: 0, hasBegun: false, client: "tune" },
    });
    while (loop.step());
    await pooled;
    const ms = performance.now() - startMs;
    loop.drop(counter);
    return { prompt: (length * 1000) / ms, decode: null, batchedDecode: null };
  }

  #job(id: number, promptLength: number, newTokens: number): SequenceJob {
    return {
      id,
      prompt: this.#prompt(promptLength),
      // The step that ends the prefill already produces the first token.
      maxNewTokens: newTokens + 1,
      ignoreEos: true,
      adapter: 0,
      sampling: greedySampling,
      choice: 0,
      breakers: new Int32Array(0),
      ...jobDefaults,
      client: "tune",
    };
  }

  /** Creates a prompt. Prompts begin with different tokens, so that no prompt shares a cached prefix with another one. */
  #prompt(length: number): Int32Array {
    const shift = 31 * promptCount++;
    const first = Math.min(128, this.#vocabSize >> 2);
    return Int32Array.from({ length }, (_, i) => (((i + shift) * 7919) % (this.#vocabSize - 2 * first)) + first);
  }
}

class TokenCounter implements Subscriber {
  tokens = 0;
  /** Sequences that have produced their first token. */
  readonly begun = new Set<number>();

  send({ rows, failed }: TokenFrame): void {
    const [failure] = failed;
    if (failure) throw new Error(failure.error.message);
    for (let at = 0; at < rows.length; at += rowInts) {
      this.begun.add(rows[at] as number);
      this.tokens++;
    }
  }
}
