// Owns what the settings say about multi-token prediction turned into what an engine is told of it. Called where models are
// made ready to be served; what cannot predict is refused by the engine, which sees the files.
import type { ModelSpec, MtpSpec } from "../../engines/engine.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { Logger } from "../../runtime/log/log.ts";
import type { Config, ModelConfig } from "../config/config.ts";
import type { Progress } from "../progress.ts";
import { fetchModel } from "./model-specs.ts";

/** Adds the prediction heads that are set to a model's spec, and fetches their assistant where there is one. */
export async function withHeads(
  config: Config,
  model: ModelConfig,
  spec: ModelSpec,
  log: Logger,
  progress: Progress,
): Promise<ModelSpec> {
  const mtp = await mtpSpec(config, model, log, progress);
  if (mtp === null) return spec;
  // Every sequence may have a draft of its own.
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
    const message = `mtp_model expects one model to draft for; got ${models.length}: leave it out, or load one model`;
    throw invalid("mtp_model", message);
  }
  const assistant = { ...model, modelId: mtpModel, format: { ...model.format, quantizedFile: null } };
  return { path: await fetchModel(config, assistant, log, progress) };
}

function invalid(param: string, message: string): ServerError {
  return new ServerError("config_invalid", message, { param });
}
