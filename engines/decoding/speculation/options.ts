// Options of speculative decoding, which are passed to the thread or process that runs the model.
import type { EngineName, LoadedModel, ModelSpec } from "../../engine.ts";
import type { StepTimeModel } from "../scheduler/step-time-model.ts";
import type { ChooseDraft } from "./mtp-drafter.ts";

/** Default maximum number of tokens of a draft. */
export const defaultMaxDraftTokens = 16;

export interface SpeculationOptions {
  /** Whether to draft from the sequence's own earlier tokens (prompt lookup). */
  readonly promptLookup: boolean;
  /** Maximum number of tokens of a draft. */
  readonly maxDraftTokens: number;
  /** A smaller draft model with the same vocabulary; null: none. */
  readonly draftModel: { readonly engine: EngineName; readonly spec: ModelSpec } | null;
  /**
   * Number of tokens that MTP heads draft in a step, if the model was loaded with them; null: the
   * number that they were trained for.
   */
  readonly mtpTokens: number | null;
  /**
   * How MTP heads pick tokens: "greedy" picks the likeliest tokens, the other values pick the tokens that would be
   * sampled from the heads' logits.
   */
  readonly mtpSampling: "auto" | "greedy" | "probabilistic";
}

export interface SpeculationParts {
  readonly model: LoadedModel;
  /** The smaller draft model, with the same number of slots as the model; null: none. Speculation disposes it. */
  readonly draft: LoadedModel | null;
  readonly options: SpeculationOptions;
  /** Estimates of the model's step times, from the measurements of the scheduler. */
  readonly cost: StepTimeModel;
  /** Picks the drafted tokens from the MTP heads' logits with the sampler. Default: the likeliest tokens. */
  readonly choose?: ChooseDraft;
  /** Returns milliseconds; used to time the drafter. */
  readonly now?: () => number;
}
