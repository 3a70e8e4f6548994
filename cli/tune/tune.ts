// `troupe tune`: finds the best settings of a model for this machine, and prints them as a table or as JSON.
import { writeFile } from "node:fs/promises";
import { wireTuneResult } from "../../http/models/tune-operation.ts";
import { ServerError } from "../../runtime/errors.ts";
import { createLogger } from "../../runtime/log/log.ts";
import { localEngine, resolveSource } from "../assembly/models/model-specs.ts";
import { sourceOptionsOf } from "../assembly/quantization/load-options.ts";
import type { Config, ModelConfig, Origin } from "../config/config.ts";
import { createProgress } from "../progress.ts";
import { keptSettings, settingsFile } from "./recommendation.ts";
import { report } from "./report.ts";
import { runTuningInChild, type TuneSettings } from "./tuner.ts";

export async function tune(config: Config): Promise<void> {
  const [model] = config.models;
  if (!model || config.models.length > 1)
    throw new ServerError("config_invalid", `tune expects one -m MODEL; got ${config.models.length}`);
  const progress = createProgress();
  const log = createLogger({ level: config.troupe.logLevel, format: "text" });
  const settings = await settingsOf(config, model, await resolveSource(config, model, log, progress));
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
  const level = model.quantization.isq ?? model.quantization.quant;
  return {
    model: model.id,
    path,
    flags: { modelId: model.modelId, kept: keptSettings(config, model, notes) },
    profile,
    budgetMs: budget * 1000,
    level: level === null ? null : String(level),
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

async function write(path: string, text: string): Promise<void> {
  try {
    await writeFile(path, text);
  } catch (cause) {
    const message = `emit_config names the file "${path}", which cannot be written: ${(cause as Error).message}`;
    throw new ServerError("config_invalid", message, { param: "emit_config", cause });
  }
}
