// Owns what a model's place is told about drafting tokens.
import type { EngineName, ModelSpec } from "../engine.ts";

export interface SpeculationOptions {
  /** Draft from what the sequence itself has said before. */
  readonly promptLookup: boolean;
  /** Most tokens of a draft. */
  readonly maxDraftTokens: number;
  /** A smaller model with the same vocabulary that drafts; null where there is none. */
  readonly draftModel: { readonly engine: EngineName; readonly spec: ModelSpec } | null;
  /** Draft with the model's own prediction heads, where it has them, so many tokens a step; null = as many as they were made for. */
  readonly headTokens: number | null;
  /** Whether heads draft their likeliest tokens or draw them. */
  readonly headSampling: "auto" | "greedy" | "probabilistic";
}
