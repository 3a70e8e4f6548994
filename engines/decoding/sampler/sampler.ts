// Sampler: chooses every next token, for all engines. The step loop opens a state for each sequence and samples each
// row of logits synchronously on the model's thread. The sampler never awaits, logs or reads a clock.
//
// Order of operations: logit bias; repetition, presence and frequency penalties; DRY; the model's suppressed tokens;
// banned tokens; the grammar's mask; temperature; top-k; top-p; min-p; one draw. Logprobs describe the model's own
// distribution, before all of these operations.
import assert from "node:assert/strict";
import { ServerError } from "../../../runtime/errors.ts";
import type { Sampling } from "../../generation.ts";
import { ReferenceKernel } from "./reference-kernel.ts";
import type { RowKernel } from "./row-kernel.ts";
import { type BannedTokens, MAX_TOP_LOGPROBS, SamplingState } from "./state.ts";
import { WasmKernel } from "./wasm-kernel.ts";

export type { SamplingState } from "./state.ts";

/**
 * Natural logarithms of probabilities. The first `count` entries of `ids` and `logprobs` are the
 * likeliest tokens, likeliest first.
 */
export interface TokenLogprobs {
  readonly chosen: number;
  readonly count: number;
  readonly ids: Int32Array;
  readonly logprobs: Float32Array;
}

export class Sampler {
  readonly vocabSize: number;
  readonly #kernel: RowKernel;
  readonly #suppressed: readonly number[];
  readonly #logprobs = {
    chosen: Number.NaN,
    count: 0,
    ids: new Int32Array(MAX_TOP_LOGPROBS),
    logprobs: new Float32Array(MAX_TOP_LOGPROBS),
  };

  /**
   * Creates the sampler of one model. It uses the SIMD kernel, or the plain TypeScript kernel if WebAssembly has no
   * SIMD. SAMPLER_SIMD=0 forces the plain kernel; with SAMPLER_SIMD=1, throws `config_invalid` if there is no SIMD.
   * `suppressed`: ids of the tokens that are never sampled.
   */
  static create(vocabSize: number, suppressed: readonly number[] = []): Sampler {
    return new Sampler(chooseKernel(vocabSize, process.env.SAMPLER_SIMD ?? ""), suppressed);
  }

  constructor(kernel: RowKernel, suppressed: readonly number[] = []) {
    this.#kernel = kernel;
    this.#suppressed = suppressed.filter((token) => token >= 0 && token < kernel.vocabSize);
    this.vocabSize = kernel.vocabSize;
  }

  /**
   * Opens the state of one sequence. A request may have several sequences (choices). `choice`: index of the sequence
   * among them. The random seed is `sampling.seed + choice`. `breakers`: ids of the tokens that end a DRY repetition.
   * Throws `invalid_value` if the settings do not fit the model.
   */
  open(
    sampling: Sampling,
    choice: number,
    prompt: Int32Array,
    breakers: Int32Array,
    banned: BannedTokens | null = null,
  ): SamplingState {
    return new SamplingState(this.vocabSize, { sampling, choice, prompt, breakers, banned });
  }

  /**
   * Chooses the next token of `state` from row `row` of a step's logits, and records it in the state. `mask` has one
   * bit per token, set if the grammar allows the token; null: no grammar. If the grammar allows only banned tokens,
   * chooses one of these. Throws `model_failed` if no token can be chosen.
   */
  sample(state: SamplingState, logits: Float32Array, row: number, mask: Int32Array | null): number {
    const start = this.#load(logits, row);
    const logSum = state.topLogprobs === null ? 0 : this.#measure(state.topLogprobs);
    const random = state.greedy ? 0 : state.random.next();
    let token = this.#choose(state, random, mask, state.bans());
    if (token < 0 && mask !== null && state.bans()) {
      this.#load(logits, row);
      token = this.#choose(state, random, mask, false);
    }
    if (token < 0) throw nothingToChoose(this.vocabSize, row);
    if (state.topLogprobs !== null) this.#logprobs.chosen = logprob(logits[start + token] as number, logSum);
    state.record(token);
    return token;
  }

  /**
   * Predicts the token that sample() would choose from these logits after `ahead` more tokens. Uses the random number
   * that sample() will use, but the current penalties and no grammar. Returns -1 if no token can be chosen. Changes no
   * state.
   */
  foresee(state: SamplingState, logits: Float32Array, row: number, ahead: number): number {
    this.#load(logits, row);
    return this.#choose(state, state.greedy ? 0 : state.random.peek(ahead), null, state.bans(ahead));
  }

  /** Records a token that was not sampled (forced by a grammar). Penalties count it as output. */
  force(state: SamplingState, token: number): void {
    state.record(token);
  }

  /**
   * Returns the logprobs of `token` (which was not sampled) and of the `top` likeliest tokens, from row `row` of a
   * step's logits. Valid until the next call.
   */
  observe(logits: Float32Array, row: number, token: number, top: number): TokenLogprobs {
    assert(top >= 0 && top <= MAX_TOP_LOGPROBS, `${top} of at most ${MAX_TOP_LOGPROBS} alternatives`);
    const start = this.#load(logits, row);
    const logSum = this.#measure(top);
    this.#logprobs.chosen = logprob(logits[start + token] as number, logSum);
    return this.#logprobs;
  }

  /** Logprobs of the last sample() call whose state requested them. The object is reused: valid until the next call. */
  get lastLogprobs(): TokenLogprobs {
    return this.#logprobs;
  }

  /** Edits the loaded row and chooses a token with the random number `random`. Returns -1 if no token can be chosen. */
  #choose(state: SamplingState, random: number, mask: Int32Array | null, bans: boolean): number {
    const kernel = this.#kernel;
    state.edit(kernel.row);
    for (const token of this.#suppressed) kernel.row[token] = Number.NEGATIVE_INFINITY;
    if (bans) state.ban(kernel.row);
    if (mask !== null) this.#restrict(mask);
    return state.greedy ? kernel.argmax() : kernel.draw(state.filters, random);
  }

  /** Copies row `row` of the logits into the kernel. Returns the index of its first logit. */
  #load(logits: Float32Array, row: number): number {
    const start = row * this.vocabSize;
    assert(start + this.vocabSize <= logits.length, `row ${row} of ${logits.length / this.vocabSize} rows of logits`);
    // set() is the fastest copy. subarray() allocates a view of about 100 bytes, the only allocation here. The view is
    // not kept, because the memory of the logits belongs to the engine.
    this.#kernel.row.set(logits.subarray(start, start + this.vocabSize));
    return start;
  }

  #restrict(mask: Int32Array): void {
    const words = this.#kernel.mask.length;
    assert(mask.length === words, `a mask of ${mask.length} words for ${this.vocabSize} tokens, which take ${words}`);
    this.#kernel.mask.set(mask);
    this.#kernel.restrict();
  }

  /**
   * Writes the logprobs of the likeliest tokens; call it before the row is edited. Returns the log-sum-exp of the row.
   */
  #measure(limit: number): number {
    const { topIds, topLogits } = this.#kernel;
    const found = this.#logprobs;
    const logSum = this.#kernel.logSum();
    found.count = limit === 0 ? 0 : this.#kernel.top(limit);
    for (let i = 0; i < found.count; i++) {
      found.ids[i] = topIds[i] as number;
      found.logprobs[i] = logprob(topLogits[i] as number, logSum);
    }
    return logSum;
  }
}

function logprob(logit: number, logSum: number): number {
  return logit === Number.POSITIVE_INFINITY ? 0 : logit - logSum;
}

function chooseKernel(vocabSize: number, setting: string): RowKernel {
  if (!["", "0", "1"].includes(setting)) {
    throw new ServerError("config_invalid", `SAMPLER_SIMD must be 0 or 1, or not be set; got "${setting}"`);
  }
  if (setting === "0") return new ReferenceKernel(vocabSize);
  const kernel = WasmKernel.create(vocabSize);
  if (kernel === null && setting === "1") {
    const message = "SAMPLER_SIMD=1 asks for the SIMD kernel, but this machine's WebAssembly has no SIMD; unset it";
    throw new ServerError("config_invalid", message);
  }
  return kernel ?? new ReferenceKernel(vocabSize);
}

function nothingToChoose(vocabSize: number, row: number): ServerError {
  const message =
    `expected a finite logit among the ${vocabSize} of row ${row}, but all are NaN or -inf: ` +
    "the model's output is broken, everything was banned, or the grammar allows only tokens that the model never " +
    "generates; try again, change the grammar, or check the model file";
  return new ServerError("model_failed", message);
}
