// Tuner: the interface to find the settings of a model that are best on this machine, by measurements. cli/ implements it.

export const tuneProfiles = ["quality", "balanced", "fast"] as const;
/** quality: the best quality that fits; fast: the most tokens per second; balanced: between the two. */
export type TuneProfile = (typeof tuneProfiles)[number];

/** Quality of a model's weights by their bits. `baseline`: the weights as they are in the model's files. */
export type TuneQuality = "baseline" | "near-lossless" | "good" | "acceptable" | "degraded";

/** hybrid: the weights fit into the memories of the GPU and of the machine together, but not into the GPU's. */
export type TuneFit = "fits" | "hybrid" | "too-large";

export interface TuneRequest {
  /** Name of a configured model, or the path or name of a model on this machine. */
  readonly model: string;
  readonly profile: TuneProfile;
  /** The only quantization level to measure; null: all. */
  readonly level: string | null;
  /** Whether GPUs are ignored. */
  readonly cpu: boolean;
  /** Number type of float weights. */
  readonly dtype: "auto" | "f16" | "bf16" | "f32";
  readonly revision: string | null;
  readonly tokenSource: string | null;
}

/** Speeds in tokens/s, estimated for the whole model from measurements of an excerpt. */
export interface TuneSpeeds {
  /** Prefill of one sequence; for an encoder: encoding of one text. */
  readonly prompt: number;
  /** Decode of one sequence; null for an encoder. */
  readonly decode: number | null;
  /** Decode of several sequences together, in total; null for an encoder. */
  readonly batchedDecode: number | null;
}

export interface TuneCandidate {
  /** Value of the setting isq; null: the weights stay as they are. */
  readonly isq: string | null;
  /** Name of the number type of most weights. */
  readonly isqName: string;
  readonly engine: "llama" | "wasm";
  readonly threads: number;
  readonly maxSequences: number;
  readonly maxBatchTokens: number;
  /** Size of the weights in memory. */
  readonly weightBytes: number;
  /** Memory of weights, KV cache of the context, and scratch. */
  readonly memoryBytes: number;
  readonly memoryPercent: number;
  /** Longest context of a sequence that fits. */
  readonly contextTokens: number;
  readonly isModelContext: boolean;
  /** Size of the KV cache to set, in tokens of all sequences together; null: it follows from the other settings. */
  readonly kvTokens: number | null;
  readonly quality: TuneQuality;
  readonly fit: TuneFit;
  /** Layers of the model on GPU 0, the others on the CPU; null: no GPU is used. */
  readonly gpuLayers: number | null;
  /** null: not measured, because the time was up or the candidate does not fit. */
  readonly speeds: TuneSpeeds | null;
  readonly isRecommended: boolean;
}

export interface TuneResult {
  readonly model: string;
  readonly profile: TuneProfile;
  /** cpu, cuda, metal or vulkan. */
  readonly backend: string;
  readonly candidates: readonly TuneCandidate[];
  readonly recommendedCommand: string;
  /** Memory of the device: of the GPU, or of the machine. */
  readonly totalBytes: number;
  readonly seconds: number;
  readonly warnings: readonly string[];
  readonly notes: readonly string[];
}

export interface Tuner {
  /**
   * Measures a model in a child process. Throws `conflict` while another tuning runs, `model_not_found` for a model that is not on
   * this machine, `cancelled` if the signal is aborted, and the error of the model if it cannot be read or measured.
   */
  tune(request: TuneRequest, signal: AbortSignal): Promise<TuneResult>;
}
