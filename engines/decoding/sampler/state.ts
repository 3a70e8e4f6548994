// SamplingState: the sampling settings, random numbers and penalties of one sequence. Sampler.open() creates it,
// and only that sampler uses it.
import { randomBytes } from "node:crypto";
import { ServerError } from "../../../runtime/errors.ts";
import type { Sampling } from "../../generation.ts";
import { DryPenalty } from "./dry.ts";
import { Penalties } from "./penalties.ts";
import { Random } from "./random.ts";
import type { Filters } from "./row-kernel.ts";

/**
 * Below this temperature, sampling is greedy. At this temperature, a token whose logit is larger by 1e-4
 * is already e^10 times likelier.
 */
const GREEDY_BELOW = 1e-5;

/** Maximum number of likeliest tokens whose logprobs can be requested. */
export const MAX_TOP_LOGPROBS = 20;

/** Tokens that must not be sampled until the sequence has `until` output tokens. */
export interface BannedTokens {
  readonly tokens: Int32Array;
  readonly until: number;
}

/** Data from which a sampling state is created. `choice`: index of the sequence among the choices of its request. */
interface SequenceStart {
  readonly sampling: Sampling;
  readonly choice: number;
  readonly prompt: Int32Array;
  /** Ids of the tokens that end a DRY repetition. */
  readonly breakers: Int32Array;
  /** Tokens that are banned at the start; null: none. */
  readonly banned: BannedTokens | null;
}

export class SamplingState {
  readonly greedy: boolean;
  readonly filters: Filters;
  readonly topLogprobs: number | null;
  readonly random: Random;
  readonly #bias: Sampling["logitBias"];
  readonly #penalties: Penalties | null;
  readonly #dry: DryPenalty | null;
  readonly #banned: BannedTokens | null;
  #recorded = 0;

  constructor(vocabSize: number, { sampling, choice, prompt, breakers, banned }: SequenceStart) {
    const { temperature, topK, topP, minP, dry } = sampling;
    checkBias(sampling.logitBias, vocabSize);
    checkTopLogprobs(sampling.topLogprobs);
    this.greedy = temperature < GREEDY_BELOW;
    this.filters = { temperature, topK: topK < vocabSize ? topK : 0, topP, minP };
    this.topLogprobs = sampling.topLogprobs;
    this.random = new Random(seedOf(sampling.seed) + BigInt(choice));
    this.#bias = sampling.logitBias;
    this.#penalties = Penalties.of(sampling, vocabSize, prompt);
    this.#dry = dry && dry.multiplier !== 0 ? new DryPenalty(dry, prompt, breakers) : null;
    this.#banned = banned;
  }

  /** Whether tokens are banned after `ahead` more tokens. */
  bans(ahead = 0): boolean {
    return this.#banned !== null && this.#recorded + ahead < this.#banned.until;
  }

  /** Applies, in this order, logit bias, repetition, presence and frequency penalties, and DRY. */
  edit(row: Float32Array): void {
    for (const [token, bias] of this.#bias) row[token] = (row[token] as number) + bias;
    this.#penalties?.apply(row);
    this.#dry?.apply(row);
  }

  /** Sets the logits of the banned tokens to -inf. */
  ban(row: Float32Array): void {
    if (this.#banned === null) return;
    for (const token of this.#banned.tokens) row[token] = Number.NEGATIVE_INFINITY;
  }

  record(token: number): void {
    this.#recorded++;
    this.#penalties?.record(token);
    this.#dry?.record(token);
  }
}

function seedOf(seed: number | null): bigint {
  if (seed === null) return randomBytes(8).readBigUInt64LE();
  if (Number.isInteger(seed)) return BigInt(seed);
  throw new ServerError("invalid_value", `seed must be an integer; got ${seed}`, { param: "seed" });
}

function checkTopLogprobs(count: number | null): void {
  if (count === null || (Number.isInteger(count) && count >= 0 && count <= MAX_TOP_LOGPROBS)) return;
  const message = `top_logprobs must be an integer from 0 to ${MAX_TOP_LOGPROBS}; got ${count}`;
  throw new ServerError("invalid_value", message, { param: "top_logprobs" });
}

function checkBias(bias: Sampling["logitBias"], vocabSize: number): void {
  for (const [token] of bias) {
    if (Number.isInteger(token) && token >= 0 && token < vocabSize) continue;
    const message = `logit_bias names token ${token}; this model's token ids are integers from 0 to ${vocabSize - 1}`;
    throw new ServerError("invalid_value", message, { param: "logit_bias" });
  }
}
