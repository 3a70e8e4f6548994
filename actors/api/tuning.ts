// Tuner: the interface to find the best settings of a model on this machine by measurements. cli/ implements it.

export const tuneProfiles = ["quality", "balanced", "fast"] as const;
/** Goal of the tuning. quality: the best quality that fits in memory; fast: the most tokens per second; balanced: a compromise. */
export type TuneProfile = (typeof tuneProfiles)[number];

/** Quality class, by bits per weight. `baseline`: at least 16 bits, or the weights as they are in the model's files. */
export type TuneQuality = "baseline" | "near-lossless" | "good" | "acceptable" | "degraded";

/** Whether the weights fit in memory. hybrid: they fit only in the GPU's and the machine's memory together. */
export type TuneFit = "fits" | "hybrid" | "too-large";

export interface TuneRequest {
  /** Name of a configured model, or the path or name of a model on this machine. */
  readonly model: string;
  readonly profile: TuneProfile;
  /** The only quantization level to measure; null = the setting `quant` of the model, or all. */
  readonly level: string | null;
  /** Whether to ignore GPUs; null = as the model is configured. */
  readonly cpu: boolean | null;
  /** Data type of float (unquantized) weights; null = as the model is configured. */
  readonly dtype: "auto" | "f16" | "bf16" | "f32" | null;
  readonly revision: string | null;
  readonly tokenSource: string | null;
}

/** Speeds in tokens/s, estimated for the whole model from measurements of an excerpt. */
export interface TuneSpeeds {
  /** Speed of prefill of one sequence; for an encoder, speed of encoding one text. */
  readonly prompt: number;
  /** Decoding speed of one sequence; null for an encoder. */
  readonly decode: number | null;
  /** Total decoding speed of several concurrent sequences; null for an encoder. */
  readonly batchedDecode: number | null;
}

export interface TuneCandidate {
  /** Value of the setting isq; null = the weights are not requantized. */
  readonly isq: string | null;
  /** Name of the data type of most weights. */
  readonly isqName: string;
  readonly engine: "llama" | "wasm";
  readonly threads: number;
  readonly maxSequences: number;
  readonly maxBatchTokens: number;
  /** Size of the weights in memory, in bytes. */
  readonly weightBytes: number;
  /** Memory in bytes for weights, KV cache of the context, and scratch buffers. */
  readonly memoryBytes: number;
  readonly memoryPercent: number;
  /** Longest context of one sequence that fits in memory, in tokens. */
  readonly contextTokens: number;
  readonly isModelContext: boolean;
  /** KV cache size to set, in tokens of all sequences together; null = the size follows from the other settings. */
  readonly kvTokens: number | null;
  readonly quality: TuneQuality;
  readonly fit: TuneFit;
  /** Number of layers on GPU 0; the other layers run on the CPU. null = no GPU is used. */
  readonly gpuLayers: number | null;
  /** Measured speeds; null = not measured, because the time limit was reached or the candidate does not fit in memory. */
  readonly speeds: TuneSpeeds | null;
  readonly isRecommended: boolean;
}

export interface TuneResult {
  readonly model: string;
  readonly profile: TuneProfile;
  /** Compute backend: cpu, cuda, metal or vulkan. */
  readonly backend: string;
  readonly candidates: readonly TuneCandidate[];
  readonly recommendedCommand: string;
  /** Memory size in bytes of the GPU, or of the machine. */
  readonly totalBytes: number;
  readonly seconds: number;
  readonly warnings: readonly string[];
  readonly notes: readonly string[];
}

export interface Tuner {
  /**
   * Measures a model in a child process. Throws `conflict` while another tuning runs, `model_not_found` if the model is not on
   * this machine, `cancelled` if the signal is aborted, and the model's error if it cannot be read or measured.
   */
  tune(request: TuneRequest, signal: AbortSignal): Promise<TuneResult>;
}
