// Prepared model: the GGUF file that the engines load. A checkpoint, or a model that the settings quantize, is converted once.
// The result is kept in the cache for later starts.
import { stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { isCheckpoint } from "../../../engines/files/hub/choice/checkpoint-choice.ts";
import { withFileLock } from "../../../engines/files/hub/download/file-lock.ts";
import { convertedFolder, defaultCacheDirectory } from "../../../engines/files/hub/model-cache.ts";
import { formatOf, type ModelFormat } from "../../../engines/files/model-format.ts";
import { type Conversion, convert } from "../../../engines/quantization/conversion/conversion.ts";
import { checkpointName, type ModelOptions, planModel } from "../../../engines/quantization/conversion/plan-model.ts";
import type { Importance } from "../../../engines/quantization/importance/importance-file.ts";
import type { Level } from "../../../engines/quantization/plan/levels.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { computeThreads } from "../../../runtime/host/cores.ts";
import type { Logger } from "../../../runtime/log/log.ts";
import type { ModelConfig } from "../../config/config.ts";
import type { Progress } from "../../progress.ts";
import { changesFile, modelOptionsOf } from "./load-options.ts";
import { levelToCreate } from "./quant.ts";
import { importanceOfText } from "./text-importance.ts";

/** Interval in ms between checks whether another process has finished converting the model. */
const lockPollMs = 500;
/** Number of digits of the key in the name of a converted file. */
const keyDigits = 16;

export interface Preparation {
  readonly model: ModelConfig;
  /** Number of threads; 0 = one per core. */
  readonly threads: number;
  readonly log: Logger;
  readonly progress: Progress;
  /** Importance of the weight columns. It replaces the importance matrix of the settings. */
  readonly importance?: Importance | null;
}

/**
 * Returns the path of the GGUF file to load for the model at `path`. Returns the same path if it is a GGUF file that no setting
 * changes; otherwise converts the model if this is not done yet. Throws `model_file_invalid`, `unsupported` or
 * `config_invalid`.
 */
export async function prepareModel(path: string, preparation: Preparation): Promise<string> {
  const { model, log } = preparation;
  const { id } = model;
  const format = await formatOf(path);
  checkFormat(path, format, model);
  const warn = (message: string) => log.warn({ model: id }, message);
  const given = await modelOptionsOf(model, warn);
  const { quant } = model.quantization;
  if (quant === null && format === "gguf" && !changesFile(given)) return path;
  const options =
    quant === null ? given : await withQuant(path, quant, given, (message) => log.info({ model: id }, message));
  if (format === "gguf" && !changesFile(options)) return path;
  const importance = preparation.importance ?? (await importanceFromText(path, preparation)) ?? options.importance;
  const { conversion, isSame } = await planModel(path, { ...options, importance }, warn);
  if (isSame) return path;
  return await convertedFile(fileName(path, options.level?.name ?? null, conversion.key), conversion, preparation);
}

/** Returns the path of a converted file in the cache. Converts it if it is not there. */
export async function convertedFile(
  name: string,
  conversion: Conversion,
  { model: { id }, threads, log, progress }: Preparation,
): Promise<string> {
  const { signal } = progress;
  const target = join(convertedFolder(defaultCacheDirectory(process.env)), name);
  const onWait = () => log.info({ model: id }, "another process converts this model; waiting for it");
  return await withFileLock(`${target}.lock`, { pollMs: lockPollMs, signal, onWait }, async () => {
    if (await isFile(target)) return target;
    log.info(
      { model: id, target, bytes: conversion.head.fileBytes },
      "the model is converted; the result stays in the cache",
    );
    const onProgress = (done: number, total: number) => progress.update(`converting ${id}`, done, total);
    await convert(conversion, { target, threads: computeThreads(threads), signal, onProgress });
    return target;
  });
}

/** Returns the importance of the weight columns for the text in `calibration_file`; null if this setting is not set. */
async function importanceFromText(path: string, preparation: Preparation): Promise<Importance | null> {
  const { model, threads, log, progress } = preparation;
  const { calibrationFile } = model.quantization;
  if (calibrationFile === null) return null;
  const { id } = model;
  return await importanceOfText(
    await prepareModel(path, { ...preparation, model: unquantized(model) }),
    calibrationFile,
    {
      threads,
      signal: progress.signal,
      onCollect: () =>
        log.info({ model: id, calibrationFile }, "the text is run through the model; the result stays in the cache"),
      onProgress: (fraction) => progress.update(`calibrating ${id}`, fraction, 1),
    },
  );
}

/**
 * Returns the settings of the model without quantization. A GGUF file is then used unchanged, and a checkpoint is converted
 * with float weights.
 */
function unquantized(model: ModelConfig): ModelConfig {
  const quantization = { ...model.quantization, isq: null, quant: null, imatrix: null, calibrationFile: null };
  return { ...model, quantization, device: { ...model.device, topology: null } };
}

/** Returns the options with the quantization level that the setting `quant` leads to. */
async function withQuant(
  path: string,
  quant: string | number,
  options: ModelOptions,
  log: (message: string) => void,
): Promise<ModelOptions> {
  const quiet = () => {};
  // Plan without the importance, because it applies to a level, which is not known yet.
  const bare = { ...options, importance: null };
  const { sourceType } = await planModel(path, bare, quiet);
  const bytesAt = async (level: Level) => (await planModel(path, { ...bare, level }, quiet)).conversion.head.fileBytes;
  return { ...options, level: await levelToCreate(quant, sourceType, bytesAt, log) };
}

/** Returns the name of the converted file: model, level, and a digest of everything that its content depends on. */
export function fileName(path: string, level: string | null, key: string): string {
  const stem = isCheckpoint(path) ? checkpointName(dirname(path)) : basename(path).replace(/\.(?:gguf|bin)$/i, "");
  const parts = [stem, level, key.slice(0, keyDigits)].filter((part) => part !== null);
  return `${parts.join("-")}.gguf`;
}

const formatFiles = {
  plain: "config.json and safetensors",
  uqff: "a UQFF file",
  gguf: "a .gguf file",
  ggml: "a GGML file (ggjt)",
} as const;

function checkFormat(path: string, found: ModelFormat, { id, format: { format } }: ModelConfig): void {
  // UQFF counts as `plain` too, because it is read together with the config.json next to it.
  if (format === null || format === found || (format === "plain" && found === "uqff")) return;
  const message = `format ${format} expects ${formatFiles[format]}; "${id}" is ${path}, ${formatFiles[found]}`;
  throw new ServerError("config_invalid", message, { param: "format" });
}

async function isFile(path: string): Promise<boolean> {
  return await stat(path).then(
    (found) => found.isFile(),
    () => false,
  );
}
