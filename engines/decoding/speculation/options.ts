// Options of speculative decoding that a model's place gets.
import type { EngineName, LoadedModel, ModelSpec } from "../../engine.ts";
import type { StepTimeModel } from "../scheduler/step-time-model.ts";
import type { ChooseDraft } from "./mtp-drafter.ts";

export interface SpeculationOptions {
  /** Draft from the sequence's own earlier tokens (prompt lookup). */
  readonly promptLookup: boolean;
  /** Most tokens of a draft. */
  readonly maxDraftTokens: number;
  /** A smaller draft model with the same vocabulary; null: none. */
  readonly draftModel: { readonly engine: EngineName; readonly spec: ModelSpec } | null;
  /** Tokens that MTP heads draft a step, if the model was loaded with them; null: the number they were trained for. */
  readonly mtpTokens: number | null;
  /** Heads draft their likeliest tokens, or else the tokens that would be sampled from their logits. */
  readonly mtpSampling: "auto" | "greedy" | "probabilistic";
}

export interface SpeculationParts {
  readonly model: LoadedModel;
  /** Has the model's number of slots; Speculation disposes it. */
  readonly draft: LoadedModel | null;
  readonly options: SpeculationOptions;
  /** Step times of the model, measured by the scheduler. */
  readonly cost: StepTimeModel;
  /** Picks the drafts of the model's heads with the sampler; by default they are the likeliest tokens. */
  readonly choose?: ChooseDraft;
  /** Milliseconds; times the drafter. */
  readonly now?: () => number;
}
