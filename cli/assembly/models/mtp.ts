// MTP (multi-token prediction): adds its settings to a ModelSpec. The engine rejects model files without MTP layers.
import type { ModelSpec, MtpSpec } from "../../../engines/engine.ts";
import { ServerError } from "../../../runtime/errors.ts";
import type { Logger } from "../../../runtime/log/log.ts";
import type { Config, ModelConfig } from "../../config/config.ts";
import type { Progress } from "../../progress.ts";
import { fetchModel, otherModel } from "./model-specs.ts";

/** Adds the configured MTP layers to a model's spec. Fetches mtp_model if it is set. */
export async function withMtp(
  config: Config,
  model: ModelConfig,
  spec: ModelSpec,
  log: Logger,
  progress: Progress,
): Promise<ModelSpec> {
  const mtp = await mtpSpec(config, model, log, progress);
  if (mtp === null) return spec;
  // All sequences may have a draft in the same step, and each draft token needs a logits row.
  const draftRows = config.maxSeqs * (config.mtpNPredict ?? 1);
  return { ...spec, mtp, extraLogitsRows: Math.max(spec.extraLogitsRows, draftRows) };
}

async function mtpSpec(config: Config, model: ModelConfig, log: Logger, progress: Progress): Promise<MtpSpec | null> {
  const { mtpModel, mtpNPredict, models, troupe } = config;
  const { maxDraftTokens } = troupe;
  if (mtpNPredict !== null && mtpNPredict > maxDraftTokens) {
    throw invalid(
      "mtp_n_predict",
      `mtp_n_predict expects at most max_draft_tokens (${maxDraftTokens}); got ${mtpNPredict}`,
    );
  }
  if (mtpModel === null) return mtpNPredict === null ? null : { path: null };
  if (models.length > 1) {
    const message = `mtp_model expects one model to draft for; got ${models.length}: remove it, or load one model`;
    throw invalid("mtp_model", message);
  }
  const assistant = otherModel(model, mtpModel);
  return { path: await fetchModel(config, assistant, log, progress) };
}

function invalid(param: string, message: string): ServerError {
  return new ServerError("config_invalid", message, { param });
}
