// Candidate of a tuning: a combination of a variant of the model, an engine and a number of threads. At its first measurement,
// an excerpt of the model is loaded, in the number types of the variant.
import { join } from "node:path";
import type { TuneSpeeds } from "../../../actors/api/tuning.ts";
import type { EngineName, ModelSpec } from "../../../engines/engine.ts";
import { openEngine } from "../../../engines/open-engine.ts";
import { convert, planConversion } from "../../../engines/quantization/conversion/conversion.ts";
import { excerptSource } from "../../../engines/quantization/conversion/excerpt-source.ts";
import type { ModelSource } from "../../../engines/quantization/conversion/model-source.ts";
import { computeThreads } from "../../../runtime/host/cores.ts";
import { bytesOf, typesOf, type Variant } from "../variants.ts";
import { batchedSequences, measuredContext, TimedCandidate } from "./timed-candidate.ts";

const measuredBatchTokens = 512;
const f16 = 1;

/**
 * Files in a folder with excerpts of a model (its first layers), one for each variant. A file is written when it is first
 * needed.
 */
export class Excerpts {
  readonly #source: ModelSource;
  readonly #folder: string;
  readonly #floatType: number | null;
  readonly #written = new Map<Variant, Promise<string>>();

  constructor(source: ModelSource, folder: string, maxWeights: number, floatType: number | null) {
    this.#source = excerptSource(source, maxWeights);
    this.#folder = folder;
    this.#floatType = floatType;
  }

  /** Returns the size of the excerpt's weights as a fraction of the size of the model's weights. */
  shareOf(variant: Variant): number {
    return bytesOf(this.#source, this.#typesOf(variant)) / variant.bytes;
  }

  pathOf(variant: Variant): Promise<string> {
    const known = this.#written.get(variant);
    if (known !== undefined) return known;
    const written = this.#write(variant, join(this.#folder, `excerpt-${this.#written.size}.gguf`));
    this.#written.set(variant, written);
    return written;
  }

  async #write(variant: Variant, target: string): Promise<string> {
    const types = this.#typesOf(variant);
    const plan = { source: this.#source, types, importance: new Map(), fileType: null };
    await convert(await planConversion(plan), { target, threads: computeThreads(0) });
    return target;
  }

  #typesOf({ level, isF16 }: Variant): ReadonlyMap<string, number> {
    return typesOf(this.#source, level, isF16 ? f16 : this.#floatType);
  }
}

/** Settings that are the same for all candidates of a tuning. */
export type CommonSpec = Pick<ModelSpec, "kvType" | "blockTokens" | "pagedKv" | "mmap" | "gpuLayers">;

export class Candidate {
  readonly variant: Variant;
  readonly engine: EngineName;
  readonly threads: number;
  readonly #excerpts: Excerpts;
  readonly #common: CommonSpec;
  #timed: TimedCandidate | null = null;
  #last: { readonly speeds: TuneSpeeds | null; readonly weightRatio: number } = { speeds: null, weightRatio: 1 };

  constructor(variant: Variant, engine: EngineName, threads: number, excerpts: Excerpts, common: CommonSpec) {
    this.variant = variant;
    this.engine = engine;
    this.threads = threads;
    this.#excerpts = excerpts;
    this.#common = common;
  }

  /** Estimated speeds of the whole model; null if not measured yet. */
  get speeds(): TuneSpeeds | null {
    const { speeds } = this.#timed ?? this.#last;
    if (speeds === null) return null;
    const share = this.#excerpts.shareOf(this.variant);
    const scaled = (speed: number | null) => (speed === null ? null : speed * share);
    return {
      prompt: speeds.prompt * share,
      decode: scaled(speeds.decode),
      batchedDecode: scaled(speeds.batchedDecode),
    };
  }

  /** Estimated memory in bytes of the whole model's weights: their size in the file, and copies that the engine makes. */
  get weightBytes(): number {
    return Math.round(this.variant.bytes * (this.#timed ?? this.#last).weightRatio);
  }

  /** Loads the excerpt if necessary, and measures it. Throws the error of the engine. */
  async measure(): Promise<void> {
    if (this.#timed === null) {
      this.#timed = await this.#load();
      await this.#timed.warmUp();
    }
    await this.#timed.measure();
  }

  /** Frees the memory of the excerpt. The measured speeds are kept. */
  dispose(): void {
    if (this.#timed === null) return;
    this.#last = { speeds: this.#timed.speeds, weightRatio: this.#timed.weightRatio };
    this.#timed.dispose();
    this.#timed = null;
  }

  async #load(): Promise<TimedCandidate> {
    const [path, engine] = await Promise.all([this.#excerpts.pathOf(this.variant), openEngine(this.engine)]);
    const spec: ModelSpec = {
      ...this.#common,
      path,
      maxSequences: batchedSequences,
      maxBatchTokens: measuredBatchTokens,
      maxModelLength: measuredContext,
      kvBudget: { tokens: batchedSequences * (measuredContext + this.#common.blockTokens * this.threads) },
      extraLogitsRows: 0,
      threads: this.threads,
      abortFlag: null,
      computeLock: null,
    };
    return new TimedCandidate(await engine.load(spec, () => {}));
  }
}
