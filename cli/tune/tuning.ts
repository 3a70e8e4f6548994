// Tuning: plans the variants of a model, checks their memory, measures those that fit, and recommends one. It runs in a
// separate process (tune-place.ts).
import { performance } from "node:perf_hooks";
import type { TuneCandidate, TuneProfile, TuneResult } from "../../actors/api/tuning.ts";
import type { EngineName } from "../../engines/engine.ts";
import { isCheckpoint } from "../../engines/files/hub/choice/checkpoint-choice.ts";
import type { ModelSource } from "../../engines/quantization/conversion/model-source.ts";
import { openModelSource, type SourceOptions } from "../../engines/quantization/conversion/plan-model.ts";
import { ServerError } from "../../runtime/errors.ts";
import { computeThreads } from "../../runtime/host/cores.ts";
import { type DeviceMemory, type Fit, fitOf, usableShare } from "./fit.ts";
import { Candidate, type CommonSpec, Excerpts } from "./measure/candidates.ts";
import { search } from "./measure/search.ts";
import { type ModelSizes, modelSizes } from "./model-sizes.ts";
import { type CommandFlags, commandOf } from "./recommendation.ts";
import { type Variant, variantsOf } from "./variants.ts";

/**
 * Description of a tuning, as plain data, because it is sent to another process. A field that is null may be chosen by the
 * tuning.
 */
export interface TuneJob {
  /** Name of the model in the result. */
  readonly model: string;
  /** Path of a GGUF file, or of the config.json of a checkpoint. */
  readonly path: string;
  readonly flags: CommandFlags;
  readonly profile: TuneProfile;
  readonly budgetMs: number;
  readonly level: string | null;
  /** GGUF type of weights that are not quantized; null = as in the files. */
  readonly floatType: number | null;
  readonly source: SourceOptions;
  readonly engines: readonly EngineName[];
  readonly backend: string;
  readonly memory: DeviceMemory;
  readonly threads: number | null;
  readonly maxSequences: number | null;
  readonly maxModelLength: number | null;
  readonly maxBatchTokens: number;
  readonly common: CommonSpec;
  /** Path of an empty folder, to which the measured excerpts of the model are written. */
  readonly folder: string;
  readonly warnings: readonly string[];
  readonly notes: readonly string[];
}

export interface TuneProgress {
  readonly done: number;
  readonly total: number;
}

/**
 * Maximum number of weights of an excerpt. It is larger than in the trial that chooses an engine, so that even 4-bit weights do
 * not fit into a CPU cache.
 */
const excerptWeights = 60_000_000;
/** Maximum fraction of the free memory for the excerpts of all variants and engines together. */
const excerptShare = 0.25;
const bytesPerKvElement = { auto: 2, f16: 2, bf16: 2, f32: 4, q8_0: 34 / 32, q4_0: 18 / 32 } as const;
const mostThreadCounts = 4;

/**
 * Runs a tuning. Throws a ServerError if the model cannot be read, or if no candidate fits into the memory and can be measured.
 */
export async function runTuning(job: TuneJob, onProgress: (progress: TuneProgress) => void): Promise<TuneResult> {
  const startMs = performance.now();
  const warnings = [...job.warnings];
  const source = await openModelSource(job.path, job.source, (message) => void warnings.push(message));
  const tuning = new Tuning(job, source);
  const firsts = tuning.firsts();
  if (firsts.length === 0) throw tooLarge(job, tuning.rows(null));
  const found = await search({
    firsts,
    othersOf: (candidate) => tuning.othersOf(candidate),
    expected: tuning.fittingCount,
    profile: job.profile,
    variationsOf: (candidate) => tuning.variationsOf(candidate),
    deadlineMs: startMs + job.budgetMs,
    nowMs: () => performance.now(),
    onProgress: (done, total) => onProgress({ done, total }),
  });
  const [best] = found.measured;
  if (best === undefined) {
    throw new ServerError(
      "model_failed",
      `no candidate of "${job.model}" could be measured: ${found.warnings.join("; ")}`,
    );
  }
  const rows = tuning.rows(best, found.measured);
  const recommended = rows.find(({ isRecommended }) => isRecommended) as TuneCandidate;
  return {
    model: job.model,
    profile: job.profile,
    backend: job.backend,
    candidates: rows,
    recommendedCommand: commandOf(recommended, job.flags),
    totalBytes: job.memory.totalBytes,
    seconds: (performance.now() - startMs) / 1000,
    warnings: [...warnings, ...found.warnings, ...(found.isCut ? [cutWarning(job)] : [])],
    notes: [...job.notes, ...tuning.notes()],
  };
}

class Tuning {
  readonly #job: TuneJob;
  readonly #variants: readonly Variant[];
  readonly #sizes: ModelSizes;
  readonly #excerpts: Excerpts;
  readonly #threads: number;
  readonly #candidates: Candidate[] = [];

  constructor(job: TuneJob, source: ModelSource) {
    this.#job = job;
    this.#sizes = modelSizes(source);
    this.#threads = computeThreads(job.threads ?? 0);
    const { level, floatType, folder } = job;
    this.#variants = variantsOf(source, { isCheckpoint: isCheckpoint(job.path), level, floatType });
    this.#excerpts = new Excerpts(source, folder, this.#excerptWeights(), floatType);
  }

  get fittingCount(): number {
    return this.#fittingPairs().length;
  }

  /** Returns, for each engine, the first variant that fits into the memory, with each number of threads. */
  firsts(): Candidate[] {
    const pairs = this.#fittingPairs();
    return this.#job.engines.flatMap((engine) => {
      const first = pairs.find((pair) => pair[1] === engine);
      return first === undefined
        ? []
        : this.#threadCounts().map((threads) => this.#candidate(first[0], engine, threads));
    });
  }

  /** Returns candidates with the engine and the number of threads of the given candidate, and with the other variants. */
  othersOf({ variant, engine, threads }: Candidate): Candidate[] {
    return this.#fittingPairs().flatMap(([other, name]) =>
      name === engine && other !== variant ? [this.#candidate(other, engine, threads)] : [],
    );
  }

  /** Returns candidates that differ from the given candidate only in the number of threads, and are not measured yet. */
  variationsOf({ variant, engine }: Candidate): Candidate[] {
    const all = this.#threadCounts().map((threads) => this.#candidate(variant, engine, threads));
    return all.filter(({ speeds }) => speeds === null);
  }

  /**
   * Returns one row of the result for each variant and engine, with its best number of threads. `measured`: measured
   * candidates, best first.
   */
  rows(best: Candidate | null, measured: readonly Candidate[] = []): TuneCandidate[] {
    return this.#pairs().map(([variant, engine]) => {
      const found = measured.find((one) => one.variant === variant && one.engine === engine) ?? null;
      return this.#row(variant, engine, found, found !== null && found === best);
    });
  }

  notes(): string[] {
    const notes = [];
    const share = this.#excerpts.shareOf(this.#variants[0] as Variant);
    if (share < 1)
      notes.push(`speeds are estimates from an excerpt of the model with ${(share * 100).toFixed(0)} % of its weights`);
    if (this.#variants.some(({ level, typeName }) => level !== null && level.name !== typeName))
      notes.push(
        "the rows of this model do not fit the blocks of all types; a type with more bits takes the place of some",
      );
    return notes;
  }

  #pairs(): [Variant, EngineName][] {
    return this.#variants.flatMap((variant) =>
      this.#job.engines.map((engine): [Variant, EngineName] => [variant, engine]),
    );
  }

  #fittingPairs(): [Variant, EngineName][] {
    return this.#pairs().filter(([variant, engine]) => this.#fit(engine, variant.bytes).status === "fits");
  }

  /**
   * Returns the numbers of threads to try: all cores, three quarters, a half and a quarter of them. If the user has set a
   * number, or there is a GPU, returns only one number.
   */
  #threadCounts(): number[] {
    const isFixed = this.#job.threads !== null || this.#job.memory.mainFreeBytes !== null;
    return isFixed ? [this.#threads] : threadCounts(this.#threads);
  }

  /** Returns the candidate with these properties. Creates it at the first call. */
  #candidate(variant: Variant, engine: EngineName, threads: number): Candidate {
    const same = (one: Candidate) => one.variant === variant && one.engine === engine && one.threads === threads;
    const known = this.#candidates.find(same);
    if (known !== undefined) return known;
    const made = new Candidate(variant, engine, threads, this.#excerpts, this.#job.common);
    this.#candidates.push(made);
    return made;
  }

  #fit(engine: EngineName, weightBytes: number): Fit {
    const { memory, maxSequences, maxModelLength, maxBatchTokens, common } = this.#job;
    return fitOf({
      ...{ engine, weightBytes, memory, maxSequences, maxModelLength, maxBatchTokens },
      threads: this.#threads,
      sizes: this.#sizes,
      bytesPerKvElement: bytesPerKvElement[common.kvType],
    });
  }

  #row(variant: Variant, engine: EngineName, found: Candidate | null, isRecommended: boolean): TuneCandidate {
    const weightBytes = found?.weightBytes ?? variant.bytes;
    const fit = this.#fit(engine, weightBytes);
    const { totalBytes } = this.#job.memory;
    return {
      isq: variant.level?.name.replace("_K", "K") ?? (variant.isF16 ? "F16" : null),
      isqName: variant.typeName,
      engine,
      threads: found?.threads ?? this.#threads,
      maxSequences: fit.maxSequences,
      maxBatchTokens: this.#job.maxBatchTokens,
      weightBytes: Math.round(weightBytes),
      memoryBytes: Math.round(fit.memoryBytes),
      memoryPercent: (fit.memoryBytes / totalBytes) * 100,
      contextTokens: fit.contextTokens,
      isModelContext: fit.contextTokens > 0 && fit.contextTokens >= this.#sizes.trainedContext,
      kvTokens: engine === "wasm" && fit.kvTokens > 0 ? fit.kvTokens : null,
      quality: variant.quality,
      fit: fit.status,
      gpuLayers: this.#gpuLayers(engine, fit),
      speeds: found?.speeds ?? null,
      isRecommended,
    };
  }

  /** Returns the number of layers on the GPU: all if the model fits, else as many as fit; null without a GPU. */
  #gpuLayers(engine: EngineName, { status, memoryBytes }: Fit): number | null {
    const { mainFreeBytes, freeBytes } = this.#job.memory;
    if (mainFreeBytes === null || engine === "wasm") return null;
    const { layers } = this.#sizes;
    return status === "fits" ? layers : Math.min(layers, Math.floor((layers * freeBytes * usableShare) / memoryBytes));
  }

  #excerptWeights(): number {
    const { engines, memory } = this.#job;
    // Sum of the bytes per weight over all variants and engines.
    const bytesPerWeight = this.#variants.reduce((sum, { bits }) => sum + bits / 8, 0) * engines.length;
    const free = memory.mainFreeBytes ?? memory.freeBytes;
    return Math.min(excerptWeights, (free * excerptShare) / bytesPerWeight);
  }
}

/** Returns the numbers of threads to try, highest first. */
export function threadCounts(most: number): number[] {
  const counts = Array.from({ length: mostThreadCounts }, (_, i) => Math.round((most * (mostThreadCounts - i)) / 4));
  return [...new Set(counts.filter((count) => count > 0))];
}

function tooLarge({ model, memory }: TuneJob, rows: readonly TuneCandidate[]): ServerError {
  const gib = (bytes: number) => `${(bytes / 2 ** 30).toFixed(1)} GiB`;
  const least = Math.min(...rows.map(({ memoryBytes }) => memoryBytes));
  return new ServerError(
    "config_invalid",
    `"${model}" does not fit: the smallest candidate needs ${gib(least)}, and ${gib(memory.freeBytes)} of memory are free; ` +
      "free memory, or use a smaller model",
  );
}

function cutWarning({ budgetMs }: TuneJob): string {
  return `the time of ${budgetMs / 1000} s was up before all measurements were done; a longer time gives a surer result`;
}
