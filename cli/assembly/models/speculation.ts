// Speculative decoding: the options for the thread or process that runs the model, from the settings.

import type { SpeculationOptions } from "../../../engines/decoding/speculation/options.ts";
import type { EngineName, KvBudget, ModelSpec } from "../../../engines/engine.ts";
import { ServerError } from "../../../runtime/errors.ts";
import type { Logger } from "../../../runtime/log/log.ts";
import type { Config, ModelConfig } from "../../config/config.ts";
import type { Progress } from "../../progress.ts";
import { modelSpec, otherModel } from "./model-specs.ts";

/**
 * KV memory of the draft model, as a fraction of the target model's KV memory. It is allocated in addition to the target
 * model's memory.
 */
const draftKvShare = 0.25;

/** Target model. The draft model uses the same engine and the same thread or process, for the same number of sequences. */
export interface DraftedModel {
  readonly model: ModelConfig;
  readonly engine: EngineName;
  readonly spec: ModelSpec;
}

/**
 * Returns the options. Downloads the draft model if one is configured. Throws config_invalid if a draft model is configured and
 * there are several models, or the model runs on other servers.
 */
export async function speculationOptions(
  config: Config,
  drafted: DraftedModel | null,
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
  drafted: DraftedModel | null,
  log: Logger,
  progress: Progress,
): Promise<SpeculationOptions["draftModel"]> {
  const modelId = config.troupe.draftModel;
  if (modelId === null) return null;
  if (config.models.length > 1) {
    const message = `draft_model expects one model to draft for; got ${config.models.length}: remove it, or load one model`;
    throw new ServerError("config_invalid", message, { param: "draft_model" });
  }
  if (drafted === null) {
    const message = "draft_model expects a model on this machine to draft for; got one with a url: remove draft_model";
    throw new ServerError("config_invalid", message, { param: "draft_model" });
  }
  const { model, engine, spec } = drafted;
  const draft = otherModel(model, modelId);
  const { abortFlag, computeLock } = spec;
  const draftSpec = await modelSpec(config, draft, log, progress);
  const kvBudget = draftBudget(draftSpec.kvBudget);
  return { engine, spec: { ...draftSpec, kvBudget, extraLogitsRows: 0, abortFlag, computeLock } };
}

/**
 * Returns the KV budget of the draft model. A budget in bytes is reduced, because the draft model needs less memory per token.
 * A budget given as a fraction of all memory belongs to the target model only.
 */
function draftBudget(budget: KvBudget | null): KvBudget | null {
  if (budget === null || "fraction" in budget) return null;
  return "bytes" in budget ? { bytes: Math.ceil(budget.bytes * draftKvShare) } : budget;
}
