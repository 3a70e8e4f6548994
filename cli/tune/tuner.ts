// Tuner: runs a tuning in a child process. Used by `troupe tune`, and by the route of the server, which runs one tuning at a
// time.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TuneProfile, TuneRequest, TuneResult, Tuner } from "../../actors/api/tuning.ts";
import type { EngineName } from "../../engines/engine.ts";
import { findLocalModel } from "../../engines/files/hub/local-model.ts";
import { resolveModel } from "../../engines/files/hub/resolve-model.ts";
import { type NativeHost, nativeHost } from "../../engines/llama/native/native-host.ts";
import type { SourceOptions } from "../../engines/quantization/conversion/plan-model.ts";
import { parseLevel } from "../../engines/quantization/plan/levels.ts";
import { dtypes } from "../../engines/quantization/plan/types.ts";
import { ServerError, toErrorRecord } from "../../runtime/errors.ts";
import { hostFacts } from "../../runtime/host/system.ts";
import { spawnPlace } from "../../runtime/thread/place.ts";
import { sourceOptionsOf } from "../assembly/quantization/load-options.ts";
import type { Config, ModelConfig } from "../config/config.ts";
import { keys } from "../config/keys.ts";
import type { DeviceMemory } from "./fit.ts";
import type { CommandFlags } from "./recommendation.ts";
import type { TuneJob, TuneProgress } from "./tuning.ts";

const tuneModule = new URL("./tune-place.js", import.meta.url);
/** Time in ms that a tuning may exceed its budget, for loading excerpts and for the last measurement. */
const graceMs = 60_000;
const stopMs = 1000;
/** Time budget in ms of a tuning that a client requests. */
const requestBudgetMs = keys.tune.budget.default * 1000;

const plainSource: SourceOptions = {
  ...{ overrides: {}, tokenizer: null, slice: null, architecture: null, queryHeads: 1 },
};

/** Fields of a tuning job that depend on the machine. The caller leaves them out; runTuningInChild() adds them. */
type HostPart = "engines" | "backend" | "memory" | "folder";

export interface TuneSettings extends Omit<TuneJob, HostPart | "warnings" | "floatType" | "level"> {
  readonly level: string | null;
  readonly dtype: keyof typeof dtypes;
  readonly engine: "auto" | EngineName;
  readonly cpu: boolean;
}

export interface TuneOptions {
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: TuneProgress) => void;
}

/** Creates the tuner of a server. */
export function createTuner(config: Config): Tuner {
  let isBusy = false;
  return {
    tune: async (request, signal) => {
      if (isBusy) {
        const message =
          "another tuning runs; its measurements would be wrong if a second one ran beside it: try again later";
        throw new ServerError("conflict", message);
      }
      isBusy = true;
      try {
        return await runTuningInChild(await settingsOf(config, request), { signal });
      } finally {
        isBusy = false;
      }
    },
  };
}

/** Runs a tuning. Throws `cancelled` if the signal is aborted; the child process has then ended. */
export async function runTuningInChild(settings: TuneSettings, options: TuneOptions): Promise<TuneResult> {
  const { signal, onProgress } = options;
  const { cpu, engine, dtype, ...others } = settings;
  const host = await hostPart(cpu, engine, nativeHost());
  const note = others.level === null ? null : parseLevel(others.level, "isq").note;
  const folder = await mkdtemp(join(tmpdir(), "troupe-tune-"));
  const job: TuneJob = {
    ...others,
    ...host,
    folder,
    floatType: dtypes[dtype],
    warnings: [...host.warnings, ...(note === null ? [] : [note])],
  };
  try {
    const place = await spawnPlace<TuneJob, TuneResult>({
      name: "tune",
      module: tuneModule,
      init: job,
      kind: "process",
      startTimeoutMs: job.budgetMs + graceMs,
      onOutput: () => {},
      ...(signal && { signal }),
      ...(onProgress && { onProgress: (value) => onProgress(value as TuneProgress) }),
    });
    await place.stop(stopMs);
    return place.ready;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function hostPart(cpu: boolean, engine: "auto" | EngineName, native: NativeHost) {
  const gpu = cpu ? null : await native.gpu();
  const problem = engine === "wasm" ? null : await native.problem();
  if (engine === "llama" && problem !== null)
    throw new ServerError("config_invalid", `llama cannot run here: ${problem}`);
  const engines: EngineName[] = engine === "auto" ? (problem === null ? ["wasm", "llama"] : ["wasm"]) : [engine];
  const warnings = problem === null ? [] : [`the llama engine is left out: ${problem}`];
  const main = hostFacts().memory;
  const [device] = gpu === null ? [] : await native.devices();
  const memory: DeviceMemory =
    device === undefined
      ? { totalBytes: main.totalBytes, freeBytes: main.availableBytes, mainFreeBytes: null }
      : { totalBytes: device.totalBytes, freeBytes: device.availableBytes, mainFreeBytes: main.availableBytes };
  // If there is a GPU, the wasm engine is used only if the user has chosen it, because it cannot use the GPU.
  const usable = device === undefined ? engines : engines.filter((name) => name === "llama" || engine === "wasm");
  return { engines: usable, backend: device === undefined ? "cpu" : (gpu ?? "cpu"), memory, warnings };
}

/** Returns the settings of a tuning that a client requests. The tuning may choose everything that the request does not set. */
async function settingsOf(config: Config, request: TuneRequest): Promise<TuneSettings> {
  const { model: name, profile, level, cpu, dtype, revision, tokenSource } = request;
  const { model, modelId, path } = await localModel(config, name, revision);
  const notes: string[] = [];
  if (revision !== null && model !== null) notes.push("hf_revision has no effect on a model of the server's settings");
  if (tokenSource !== null) notes.push("token_source has no effect: the server downloads nothing for a tuning");
  return {
    ...freeSettings(profile, requestBudgetMs),
    model: name,
    path,
    flags: flagsOf(model, modelId, dtype, cpu),
    level,
    dtype,
    cpu,
    notes,
    source: model === null ? plainSource : await sourceOptionsOf(model, (message) => void notes.push(message)),
  };
}

/** Returns settings with which the tuning may choose everything. */
function freeSettings(profile: TuneProfile, budgetMs: number) {
  return {
    ...({ profile, budgetMs, engine: "auto", threads: null, maxSequences: null, maxModelLength: null } as const),
    maxBatchTokens: keys.general.maxNumBatchedTokens.default,
    common: {
      ...({ kvType: "auto", pagedKv: null, mmap: true, gpuLayers: -1 } as const),
      blockTokens: keys.pagedAttn.blockSize.default,
    },
  };
}

function flagsOf(model: ModelConfig | null, modelId: string, dtype: string, cpu: boolean): CommandFlags {
  const { quantizedFile = null, tokModelId = null } = model?.format ?? {};
  const hfCache = model?.device.hfCache ?? null;
  const settings = [
    ["models.format", "quantized_file", "--quantized-file", quantizedFile],
    ["models.format", "tok_model_id", "--tok-model-id", tokModelId],
    ["models.device", "hf_cache", "--hf-cache", hfCache],
    ["models.device", "cpu", "--cpu", cpu || null],
    ["", "matformer_config_path", "--matformer-config-path", model?.matformerConfigPath ?? null],
    ["", "matformer_slice_name", "--matformer-slice-name", model?.matformerSliceName ?? null],
    ["models", "arch", "--arch", model?.arch ?? null],
    ["models.format", "gqa", "--gqa", model === null || model.format.gqa === 1 ? null : model.format.gqa],
    ["models", "dtype", "--dtype", dtype === "auto" ? null : dtype],
  ] as const;
  const kept = settings.flatMap(([section, name, flag, value]) =>
    value === null ? [] : [{ section, name, flag, value }],
  );
  return { modelId, kept };
}

interface LocalModel {
  readonly model: ModelConfig | null;
  readonly modelId: string;
  readonly path: string;
}

/** Finds a model on this machine. Nothing is downloaded, because a client must not fill the disk of the server. */
async function localModel(config: Config, name: string, revision: string | null): Promise<LocalModel> {
  const { models, defaultModelId } = config;
  const wanted = name === "default" ? defaultModelId : name;
  const model = models.find(({ id, modelId }) => id === wanted || modelId === wanted) ?? null;
  const environment = { ...process.env, HF_HUB_OFFLINE: "1" };
  try {
    if (model !== null) {
      const { hfCache } = model.device;
      const { quantizedFile } = model.format;
      return {
        model,
        modelId: model.modelId,
        ...(await resolveModel(model.modelId, { environment, hfCache, quantizedFile })),
      };
    }
    // The error of another file would contain its first bytes.
    const local = await findLocalModel(name, null).catch(() => {
      throw new ServerError("model_not_found", "it is not a model file, or cannot be read");
    });
    if (local !== null) return { model, modelId: name, path: local };
    // Only names on the hub are looked up, because other sources would install packages or run other programs.
    if (!/^[\w.-]+\/[\w.-]+(?::.+)?$/.test(name))
      throw new ServerError("model_not_found", "no file and no name of the hub");
    const source = revision === null ? name : name.replace(/^([^:]+)/, `$1@${revision}`);
    return { model, modelId: source, ...(await resolveModel(source, { environment })) };
  } catch (cause) {
    const known = models.map(({ id }) => JSON.stringify(id)).join(", ");
    const reason = toErrorRecord(cause).message.slice(0, 300);
    const message = `no model ${JSON.stringify(name.slice(0, 200))} is on this machine; configured are ${known} (${reason})`;
    throw new ServerError("model_not_found", message, { param: "model_id", cause });
  }
}
