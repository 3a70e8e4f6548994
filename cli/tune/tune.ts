// `troupe tune`: finds the best settings of a model for this machine, and prints them as a table or as JSON.
import { writeFile } from "node:fs/promises";
import { resolveModel } from "../../engines/files/hub/resolve-model.ts";
import { wireTuneResult } from "../../http/models/tune-operation.ts";
import { ServerError } from "../../runtime/errors.ts";
import { createLogger } from "../../runtime/log/log.ts";
import { localEngine } from "../assembly/models/model-specs.ts";
import { sourceOptionsOf } from "../assembly/quantization/load-options.ts";
import type { Config, ModelConfig, Origin } from "../config/config.ts";
import { appliesTo, entryAt, groups } from "../config/keys.ts";
import { createProgress } from "../progress.ts";
import { type KeptSetting, settingsFile } from "./recommendation.ts";
import { report } from "./report.ts";
import { runTuningInChild, type TuneSettings } from "./tuner.ts";

export async function tune(config: Config): Promise<void> {
  const [model] = config.models;
  if (!model || config.models.length > 1)
    throw new ServerError("config_invalid", `tune expects one -m MODEL; got ${config.models.length}`);
  const progress = createProgress();
  const log = createLogger({ level: config.troupe.logLevel, format: "text" });
  const { path } = await resolveModel(model.modelId, {
    tokenSource: config.tokenSource,
    hfCache: model.device.hfCache,
    quantizedFile: model.format.quantizedFile,
    onNotice: (message) => log.info({ model: model.id }, message),
    onProgress: ({ phase, doneBytes, totalBytes }) => progress.update(`${phase} ${model.id}`, doneBytes, totalBytes),
  });
  const settings = await settingsOf(config, model, path);
  const result = await runTuningInChild(settings, {
    onProgress: ({ done, total }) => progress.update("measuring", Math.min(done, total), total),
  });
  progress.stop();
  const { emitConfig } = config.tune;
  if (emitConfig !== null) await write(emitConfig, settingsFile(result, settings.flags));
  const text = config.run.json ? JSON.stringify(wireTuneResult(result), null, 2) : report(result, emitConfig);
  process.stdout.write(`${text}\n`);
}

/** Returns the settings of the tuning. Settings that the user gives are kept; the tuning chooses the others. */
async function settingsOf(config: Config, model: ModelConfig, path: string): Promise<TuneSettings> {
  const notes: string[] = [];
  const { profile, budget } = config.tune;
  const given = (group: Origin["group"], field: string) =>
    config.origins.some((origin) => origin.group === group && origin.field === field);
  const { threads, mmap } = config.troupe;
  const { cacheType, blockSize, mode } = config.pagedAttn;
  const { isq } = model.quantization;
  return {
    model: model.id,
    path,
    flags: { modelId: model.modelId, kept: keptSettings(config, model) },
    profile,
    budgetMs: budget * 1000,
    level: isq === null ? null : String(isq),
    dtype: model.dtype,
    source: await sourceOptionsOf(model, (message) => void notes.push(message)),
    engine: localEngine(config),
    cpu: model.device.cpu,
    threads: threads === 0 ? null : threads,
    maxSequences: given("general", "maxSeqs") ? config.maxSeqs : null,
    maxModelLength: model.maxModelLen,
    maxBatchTokens: config.maxNumBatchedTokens,
    common: {
      kvType: cacheType,
      blockTokens: blockSize,
      pagedKv: mode === "auto" ? null : mode === "on",
      mmap,
      gpuLayers: model.device.cpu ? 0 : -1,
    },
    notes,
  };
}

/** Settings that the recommendation chooses itself. The user's values of these settings are not repeated. */
const decided: ReadonlySet<string> = new Set([
  ...["modelId", "isq", "engine", "threads", "maxSeqs", "maxNumBatchedTokens", "maxModelLen", "kvCache"],
]);

/**
 * Returns the user's settings that the recommendation repeats. Settings that are lists or tables, secrets, and switches that
 * are off are left out.
 */
function keptSettings(config: Config, model: ModelConfig): KeptSetting[] {
  return config.origins.flatMap(({ group, field }) => {
    const entry = entryAt(group as "models", field as "modelId");
    const { section } = groups[group];
    if (section === null || decided.has(field) || entry.key.secret || !appliesTo(entry, "serve")) return [];
    const value = valueAt(config, model, group, field);
    const isPlain = typeof value === "string" || typeof value === "number" || typeof value === "boolean";
    return isPlain && value !== false ? [{ section, name: entry.name, flag: entry.flag, value }] : [];
  });
}

function valueAt(config: Config, model: ModelConfig, group: Origin["group"], field: string): unknown {
  const places: readonly object[] = [
    group === "models" ? model : {},
    group in model ? (model[group as keyof ModelConfig] as object) : {},
    group in config && group !== "models" ? (config[group as keyof Config] as object) : {},
    group === "general" ? config : {},
  ];
  return places.map((place) => (place as Record<string, unknown>)[field]).find((value) => value !== undefined);
}

async function write(path: string, text: string): Promise<void> {
  try {
    await writeFile(path, text);
  } catch (cause) {
    const message = `emit_config names the file "${path}", which cannot be written: ${(cause as Error).message}`;
    throw new ServerError("config_invalid", message, { param: "emit_config", cause });
  }
}
