// Owns what a model's place is told about drafting tokens.
import type { EngineName, LoadedModel, ModelSpec } from "../../engine.ts";
import type { StepTimeModel } from "../scheduler/step-time-model.ts";
import type { ChooseDraft } from "./mtp-drafter.ts";

export interface SpeculationOptions {
  /** Draft from what the sequence itself has said before. */
  readonly promptLookup: boolean;
  /** Most tokens of a draft. */
  readonly maxDraftTokens: number;
  /** A smaller model with the same vocabulary that drafts; null where there is none. */
  readonly draftModel: { readonly engine: EngineName; readonly spec: ModelSpec } | null;
  /** Tokens that prediction heads draft a step, where the model was loaded with them; null = as many as they were made for. */
  readonly mtpTokens: number | null;
  /** Heads draft their likeliest tokens, or (else) what would be sampled if the model said the same as they do. */
  readonly mtpSampling: "auto" | "greedy" | "probabilistic";
}

export interface SpeculationParts {
  readonly model: LoadedModel;
  /** Has as many slots as the model; Speculation disposes it. */
  readonly draft: LoadedModel | null;
  readonly options: SpeculationOptions;
  /** What steps of the model take: the scheduler's. */
  readonly cost: StepTimeModel;
  /** Picks the drafts of the model's heads as the model's own tokens will be picked; left out, they are the likeliest. */
  readonly choose?: ChooseDraft;
  /** Milliseconds, to time the drafter by. */
  readonly now?: () => number;
}
