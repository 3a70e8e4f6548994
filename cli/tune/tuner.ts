// Tuner: runs a tuning in a child process. Used by `troupe tune`, and by the route of the server, which runs one tuning at a
// time.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TuneProfile, TuneRequest, TuneResult, Tuner } from "../../actors/api/tuning.ts";
import type { EngineName } from "../../engines/engine.ts";
import { type NativeHost, nativeHost } from "../../engines/llama/native/native-host.ts";
import type { SourceOptions } from "../../engines/quantization/conversion/plan-model.ts";
import { parseLevel } from "../../engines/quantization/plan/levels.ts";
import { dtypes } from "../../engines/quantization/plan/types.ts";
import { ServerError } from "../../runtime/errors.ts";
import { hostFacts } from "../../runtime/host/system.ts";
import type { Logger } from "../../runtime/log/log.ts";
import { spawnPlace } from "../../runtime/thread/place.ts";
import { sourceOptionsOf } from "../assembly/quantization/load-options.ts";
import { isAuto } from "../assembly/quantization/quant.ts";
import type { Config, ModelConfig } from "../config/config.ts";
import { keys } from "../config/keys.ts";
import type { DeviceMemory } from "./fit.ts";
import { type KeptSetting, keptSettings } from "./recommendation.ts";
import { requestedModel } from "./requested-model.ts";
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
export function createTuner(config: Config, log: Logger): Tuner {
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
        return await runTuningInChild(await requestedTuning(config, request, log), { signal });
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

/**
 * Returns the settings of a tuning that a client requests. The settings of a configured model are kept, except those that the tuning or the
 * request chooses.
 */
export async function requestedTuning(config: Config, request: TuneRequest, log: Logger): Promise<TuneSettings> {
  const { model: name, profile, revision, tokenSource } = request;
  const { model, modelId, path } = await requestedModel(config, request, log);
  const notes: string[] = [];
  if (revision !== null && model !== null) notes.push("hf_revision has no effect on a model of the server's settings");
  if (tokenSource !== null) notes.push("token_source has no effect: the server downloads nothing for a tuning");
  const cpu = request.cpu ?? model?.device.cpu ?? false;
  const dtype = request.dtype ?? model?.dtype ?? "auto";
  const quant = model?.quantization.quant ?? null;
  if (isAuto(quant)) notes.push('quant = "auto" is not repeated: the tuning chooses the quantization');
  const kept = model === null ? [] : keptSettings(ownSettings(config, model), model, notes);
  return {
    ...freeSettings(profile, requestBudgetMs),
    model: name,
    path,
    flags: { modelId, kept: [...kept, ...chosenSettings(cpu, dtype)] },
    level: request.level ?? (quant === null || isAuto(quant) ? null : String(quant)),
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

/** Returns the config with only those settings of a model that neither the tuning nor a request chooses. */
function ownSettings(config: Config, { id, quantization }: ModelConfig): Config {
  const chosen = ["cpu", "dtype", "deviceLayers", ...(isAuto(quantization.quant) ? ["quant"] : [])];
  const index = config.models.findIndex((model) => model.id === id);
  return {
    ...config,
    origins: config.origins.filter(({ model, field }) => model === index && !chosen.includes(field)),
  };
}

function chosenSettings(cpu: boolean, dtype: string): KeptSetting[] {
  return [
    ...(cpu ? [{ section: "models.device", name: "cpu", flag: "--cpu", value: true }] : []),
    ...(dtype === "auto" ? [] : [{ section: "models", name: "dtype", flag: "--dtype", value: dtype }]),
  ];
}
