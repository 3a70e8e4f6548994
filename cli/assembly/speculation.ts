// Owns what the settings say about drafting tokens turned into what a model's place is told of it.

import type { SpeculationOptions } from "../../engines/decoding/speculation/options.ts";
import type { EngineName, KvBudget, ModelSpec } from "../../engines/engine.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { Logger } from "../../runtime/log/log.ts";
import type { Config, ModelConfig } from "../config/config.ts";
import type { Progress } from "../progress.ts";
import { modelSpec } from "./model-specs.ts";

/** Beside the KV memory a model was given, its draft model takes this part of it. */
const draftKvShare = 0.25;

/** The model that is drafted for: the draft model runs on its engine, on its place and for as many sequences. */
export interface DraftedModel {
  readonly model: ModelConfig;
  readonly engine: EngineName;
  readonly spec: ModelSpec;
}

/** Fetches the draft model where one is set. Throws config_invalid where it cannot be told which model it drafts for. */
export async function speculationOptions(
  config: Config,
  drafted: DraftedModel,
  log: Logger,
  progress: Progress,
): Promise<SpeculationOptions> {
  const { speculation, maxDraftTokens } = config.troupe;
  return {
    promptLookup: speculation === "auto",
    maxDraftTokens,
    draftModel: await draftModel(config, drafted, log, progress),
    mtpTokens: config.mtpNPredict,
    mtpSampling: config.mtpDraftSampling,
  };
}

async function draftModel(
  config: Config,
  { model, engine, spec }: DraftedModel,
  log: Logger,
  progress: Progress,
): Promise<SpeculationOptions["draftModel"]> {
  const modelId = config.troupe.draftModel;
  if (modelId === null) return null;
  if (config.models.length > 1) {
    const message = `draft_model expects one model to draft for; got ${config.models.length}: leave it out, or load one model`;
    throw new ServerError("config_invalid", message, { param: "draft_model" });
  }
  const draft = { ...model, modelId, format: { ...model.format, quantizedFile: null } };
  const { abortFlag, computeLock } = spec;
  const draftSpec = await modelSpec(config, draft, log, progress);
  const kvBudget = draftBudget(draftSpec.kvBudget);
  return { engine, spec: { ...draftSpec, kvBudget, extraLogitsRows: 0, abortFlag, computeLock } };
}

/** The KV of as many tokens takes less room in a smaller model; a part of all memory was the big one's to take. */
function draftBudget(budget: KvBudget | null): KvBudget | null {
  if (budget === null || "fraction" in budget) return null;
  return "bytes" in budget ? { bytes: Math.ceil(budget.bytes * draftKvShare) } : budget;
}
