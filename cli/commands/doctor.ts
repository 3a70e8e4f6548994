// `troupe doctor`: checks whether this machine can run the server, and prints the findings as text or JSON. The exit code is 1
// if a check fails.
import { stat } from "node:fs/promises";
import { resolve } from "node:path";
import arg from "arg";
import { shardPaths } from "../../engines/files/gguf/shards.ts";
import { smallestModel } from "../../engines/files/hub/catalog.ts";
import { nativeHost } from "../../engines/llama/native/native-host.ts";
import { espeakSource, identifySpeech } from "../../engines/speech/open-speech.ts";
import { wireDiagnosis } from "../../http/system/schemas.ts";
import { ServerError, toErrorRecord } from "../../runtime/errors.ts";
import type { Check, Diagnosis, EngineReport } from "../../runtime/host/system.ts";
import { createLogger } from "../../runtime/log/log.ts";
import { parseArguments } from "../arguments.ts";
import { isDiffusionModel } from "../assembly/models/diffusion.ts";
import { modelEngine, modelSpec } from "../assembly/models/model-specs.ts";
import { isSpeechModel } from "../assembly/models/speech.ts";
import { type Config, type ModelConfig, resolveConfig } from "../config/config.ts";
import { createProgress } from "../progress.ts";
import { checkOptions } from "../system/check-options.ts";
import { diagnose } from "../system/inspector.ts";
import { doctorFlags } from "./tool-flags.ts";

const usage = "troupe doctor [-m MODEL [-f FILE]] [--json]";
const marks = { ok: "ok   ", warn: "warn ", error: "ERROR" } as const;

/** Runs the command; `args` are the words after `troupe doctor`. Throws config_invalid for unknown arguments. */
export async function doctorCommand(args: readonly string[]): Promise<void> {
  const flags = parse(args);
  if (flags["--help"]) return void process.stdout.write(`${usage}\n`);
  const model = flags["--model-id"] ?? null;
  const file = flags["--quantized-file"] ?? null;
  if (model === null && file !== null) throw new ServerError("config_invalid", `-f expects -m; got none: ${usage}`);
  const { config, problem } = settings(model, file);
  const { engines, sizes, checks } = await modelReports(model === null ? [] : config.models, config);
  const found = await diagnose({ ...checkOptions(config, sizes, engines), settingsProblem: problem });
  const diagnosis = { ...found, checks: [...found.checks, ...checks] };
  const text = flags["--json"] ? JSON.stringify(wireDiagnosis(diagnosis), null, 2) : report(diagnosis);
  process.stdout.write(`${text}\n`);
  if (diagnosis.checks.some(({ status }) => status === "error")) process.exitCode = 1;
}

/**
 * Returns the settings of `serve -m model -f file`. If serve would reject them, returns the default settings and the reason.
 */
function settings(
  model: string | null,
  file: string | null,
): { readonly config: Config; readonly problem: string | null } {
  const { flags } = parseArguments([
    "serve",
    ...(model === null ? [] : ["-m", model]),
    ...(file === null ? [] : ["-f", file]),
  ]);
  const request = { command: "serve", flags, defaultModel: smallestModel } as const;
  try {
    return { config: resolveConfig({ ...request, environment: process.env }), problem: null };
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    return { config: resolveConfig({ ...request, environment: {} }), problem: error.message };
  }
}

interface ModelReports {
  readonly engines: EngineReport[];
  /** Size of each model's weights. */
  readonly sizes: { readonly id: string; readonly bytes: number }[];
  /** A failed check for each model that no engine can run, and a check for each model of speech or of images. */
  readonly checks: Check[];
}

/** Returns the engine and the size of each model. Downloads missing models. */
export async function modelReports(models: Config["models"], config: Config): Promise<ModelReports> {
  const progress = createProgress();
  const log = createLogger({ level: "silent", format: "text" });
  const engines: EngineReport[] = [];
  const sizes: ModelReports["sizes"] = [];
  const checks: Check[] = [];
  for (const model of models) {
    try {
      const other = await otherEngine(model);
      if (other !== null) {
        checks.push({ name: "engine", status: "ok", message: `"${model.id}" ${other}` });
        continue;
      }
      const spec = await modelSpec(config, model, log, progress);
      const files = await Promise.all(shardPaths(spec.path).map((path) => stat(path)));
      sizes.push({ id: model.id, bytes: files.reduce((sum, { size }) => sum + size, 0) });
      engines.push({ model: model.id, ...(await modelEngine(config, model, spec, nativeHost(), log)) });
    } catch (error) {
      checks.push({ name: "engine", status: "error", message: toErrorRecord(error).message });
    }
  }
  progress.stop();
  return { engines, sizes, checks };
}

/** Returns what runs a model of speech or of images; null for other models. Throws `model_file_invalid`. */
async function otherEngine(model: ModelConfig): Promise<string | null> {
  if (await isDiffusionModel(model)) return "is a diffusion model, which runs on ONNX Runtime";
  if (!isSpeechModel(model)) return null;
  const { engine } = identifySpeech(model.modelId === espeakSource ? espeakSource : resolve(model.modelId));
  return `is a speech model (${engine})`;
}

function parse(args: readonly string[]) {
  try {
    const { _: words, ...flags } = arg(doctorFlags, { argv: [...args] });
    if (words.length > 0) throw new ServerError("config_invalid", `unexpected "${words[0]}"; doctor expects ${usage}`);
    return flags;
  } catch (cause) {
    if (!(cause instanceof arg.ArgError)) throw cause;
    throw new ServerError("config_invalid", `${cause.message}; doctor expects ${usage}`, { cause });
  }
}

/** Formats the findings as text. */
export function report({ system, checks }: Diagnosis): string {
  const { host, physicalCores, build } = system;
  const { brand, logicalCores } = host.cpu;
  const facts = [
    `troupe ${build.version}${build.gitRevision === null ? "" : ` (${build.gitRevision.slice(0, 12)})`}`,
    `${host.os}, ${host.kernel}`,
    `${brand}, ${physicalCores} cores, ${logicalCores} threads`,
  ];
  return [...facts, "", ...checks.map(line)].join("\n");
}

function line({ name, status, message, suggestion }: Check): string {
  const advice = suggestion === undefined ? "" : `\n        ${suggestion}`;
  return `${marks[status]}  ${name}: ${message}${advice}`;
}
