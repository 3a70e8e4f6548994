// UQFF output of `troupe quantize`: writes the shards of each level, the tensors that are not quantized, the report, the
// README, and copies of the small files of the checkpoint. The folder is then a complete model for this program and for
// mistral.rs.
import { copyFile, mkdir, readdir, stat, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { classNamed } from "../../../engines/files/checkpoint/architectures/named-architecture.ts";
import { Config, isObject, type JsonObject, merged } from "../../../engines/files/checkpoint/config.ts";
import { readJsonObject } from "../../../engines/files/checkpoint/json-file.ts";
import { isCheckpoint } from "../../../engines/files/hub/choice/checkpoint-choice.ts";
import { withFileLock } from "../../../engines/files/hub/download/file-lock.ts";
import { uqffVersion } from "../../../engines/files/uqff/uqff-files.ts";
import { convert } from "../../../engines/quantization/conversion/conversion.ts";
import { type PlannedUqff, planUqff } from "../../../engines/quantization/conversion/plan-uqff.ts";
import { stemOfType } from "../../../engines/quantization/plan/levels.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { modelOptionsOf } from "../../assembly/quantization/load-options.ts";
import type { ModelConfig } from "../../config/config.ts";
import type { Progress } from "../../progress.ts";
import { version } from "../../version.ts";
import { byTroupe, writeReadme } from "../readme.ts";
import { sizeText, textTable } from "../table.ts";
import { outputOf, reportFile, reportWith } from "./report.ts";

export interface UqffOptions {
  /** Path of a .uqff file for one level, or of a folder. */
  readonly output: string;
  readonly baseModel: string;
  readonly repoId: string | null;
  readonly hasReadme: boolean;
  readonly threads: number;
  readonly model: ModelConfig;
  readonly progress: Progress;
  readonly warn: (message: string) => void;
}

interface Written {
  readonly level: string;
  readonly stem: string;
  readonly planned: PlannedUqff;
  readonly seconds: number;
}

/** Interval in ms between checks whether another process has released its lock. */
const lockPollMs = 500;
const configFile = "config.json";
/** Names of the small files that are copied: tokenizer, templates, defaults, and configuration of embedding models. */
const copied =
  /^(?:generation_config|config_sentence_transformers|modules|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab|chat_template|processor_config|preprocessor_config)\.json$|^(?:artifact\.metadata|tokenizer\.model|vocab\.txt|merges\.txt|chat_template\.jinja)$/;
/** Names of the folders that are copied: pooling and dense layers of embedding models, further chat templates. */
const copiedFolders = /^(?:\d+_\w+|additional_chat_templates)$/;

/**
 * Quantizes the checkpoint at `source` at each level and writes the files. Returns a table of the written files. Throws
 * `config_invalid`.
 */
export async function writeUqff(source: string, levels: readonly string[], options: UqffOptions): Promise<string> {
  const { output, model, hasReadme } = options;
  if (!isCheckpoint(source)) {
    const message = `UQFF has the config.json and the names of a model in safetensors; ${source} is a GGUF file: name the model's folder or repository as -m, or write a .gguf file`;
    throw new ServerError("config_invalid", message, { param: "model_id" });
  }
  const isFile = /\.uqff$/i.test(output);
  const folder = isFile ? dirname(output) : output;
  if ((await realFolder(folder)) === (await realFolder(dirname(source)))) {
    throw new ServerError("config_invalid", `-o names the folder of the model itself, ${folder}; name another`);
  }
  const config = await changedConfig(source, model);
  await refuseOtherConfig(config, folder);
  const written: Written[] = [];
  for (const name of levels) {
    // A `-0` at the end of a given file name is the number of the first shard.
    const stem = isFile ? basename(output).replace(/(?:-0)?\.uqff$/i, "") : stemOfType(name);
    written.push(await writeLevel(source, name, folder, stem, options));
  }
  await writeFile(join(folder, configFile), `${JSON.stringify(config, null, 2)}\n`);
  await copySmallFiles(dirname(source), folder, model);
  await writeReport(folder, written, options);
  if (hasReadme) await writeReadme(folder, readme(folder, written, options), options.warn);
  return table(folder, written);
}

/**
 * Returns the content of config.json with the user's changes (`hf_overrides`, and the class that `arch` names), and without the settings of
 * an earlier quantization.
 */
async function changedConfig(source: string, { hfOverrides, arch }: ModelConfig): Promise<JsonObject> {
  const path = join(dirname(source), configFile);
  const config = unquantized(merged((await readJsonObject(path)) ?? {}, (hfOverrides ?? {}) as JsonObject));
  return arch === null ? config : { ...config, architectures: [classNamed(arch, new Config(path, config))] };
}

/** Throws config_invalid if the config.json in the folder is not of a model of the same type. It would be replaced. */
async function refuseOtherConfig(own: JsonObject, into: string): Promise<void> {
  const there = await readJsonObject(join(into, configFile));
  if (there == null || there.model_type === own.model_type) return;
  const message = `-o names the folder ${into}, whose config.json is not of this type of model and would be replaced; name another`;
  throw new ServerError("config_invalid", message);
}

async function writeLevel(
  source: string,
  level: string,
  folder: string,
  stem: string,
  { model, threads, progress, warn }: UqffOptions,
): Promise<Written> {
  const loadOptions = await modelOptionsOf({ ...model, quantization: { ...model.quantization, isq: level } }, warn);
  const planned = await planUqff(source, loadOptions, { stem, producer: "troupe", warn });
  const start = performance.now();
  const { signal } = progress;
  for (const [name, conversion] of planned.files) {
    const target = join(folder, name);
    await mkdir(folder, { recursive: true });
    const onProgress = (done: number, total: number) => progress.update(`writing ${name}`, done, total);
    const onWait = () => warn(`another process writes ${target}; waiting for it`);
    await withFileLock(`${target}.lock`, { pollMs: lockPollMs, signal, onWait }, () =>
      convert(conversion, { target, threads, signal, onProgress }),
    );
  }
  return { level, stem, planned, seconds: (performance.now() - start) / 1000 };
}

/** Copies tokenizer, templates and defaults. */
async function copySmallFiles(from: string, into: string, { tokenizer, format }: ModelConfig): Promise<void> {
  for (const name of await readdir(from)) {
    if (copied.test(name)) await copyFile(join(from, name), join(into, name));
    else if (copiedFolders.test(name)) await copyFolder(join(from, name), join(into, name));
  }
  const other = tokenizer ?? format.tokModelId;
  if (other === null) return;
  if ((await stat(other)).isDirectory()) {
    for (const name of await readdir(other)) if (copied.test(name)) await copyFile(join(other, name), join(into, name));
  } else await copyFile(other, join(into, "tokenizer.json"));
}

async function copyFolder(from: string, into: string): Promise<void> {
  await mkdir(into, { recursive: true });
  for (const name of await readdir(from)) {
    if ((await stat(join(from, name))).isFile()) await copyFile(join(from, name), join(into, name));
  }
}

function unquantized(config: JsonObject): JsonObject {
  const { quantization_config, compression_config, ...rest } = config;
  return isObject(rest.text_config) ? { ...rest, text_config: unquantized(rest.text_config) } : rest;
}

/** Writes uqff_report.json in the format of mistral.rs, which uses the report to find the shards of a quantization. */
async function writeReport(
  folder: string,
  written: readonly Written[],
  { baseModel, repoId }: UqffOptions,
): Promise<void> {
  const outputs = written.map(({ stem, planned }) => outputOf(stem, shardsOf(planned), planned.layers));
  const report = reportWith(outputs, { tool: `troupe quantize ${version}`, baseModel, repoId });
  await writeFile(join(folder, reportFile), `${JSON.stringify(report, null, 2)}\n`);
}

function readme(folder: string, written: readonly Written[], options: UqffOptions): string[] {
  const { baseModel, repoId } = options;
  const name = repoId ?? folder;
  const rows = written.map(({ level, stem, planned }) => {
    const [first = ""] = shardsOf(planned);
    return `| ${level} | ${first} | ${sizeText(bytesOf(planned))} | \`troupe serve -m ${name} --from-uqff ${stem}\` |`;
  });
  return [
    ...[
      "---",
      "tags:",
      "  - uqff",
      `base_model: ${JSON.stringify(baseModel)}`,
      "base_model_relation: quantized",
      "---",
      "",
    ],
    ...[`# ${basename(repoId ?? baseModel)}, quantized`, ""],
    `Weights of \`${baseModel}\` in UQFF ${uqffVersion.major}.${uqffVersion.minor}, made ${byTroupe} ${version}. Further shards are`,
    "found by their numbers; `residual.safetensors` has the tensors that are not quantized.",
    "",
    ...["| level | first file | size | use |", "|---|---|---|---|", ...rows, ""],
  ];
}

function shardsOf({ files }: PlannedUqff): string[] {
  return [...files.keys()].filter((name) => name.endsWith(".uqff"));
}

function bytesOf({ files }: PlannedUqff): number {
  return [...files].reduce((sum, [, { head }]) => sum + head.fileBytes, 0);
}

function table(folder: string, written: readonly Written[]): string {
  const rows = written.map(({ level, planned, seconds }) => {
    return [level, sizeText(bytesOf(planned)), `${seconds.toFixed(1)} s`, join(folder, shardsOf(planned)[0] ?? "")];
  });
  return textTable([["level", "size", "time", "file"], ...rows]);
}

async function realFolder(folder: string): Promise<string> {
  const { dev, ino } = await stat(folder).catch(() => ({ dev: -1, ino: folder }));
  return `${dev}:${ino}`;
}
