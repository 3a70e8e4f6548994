// Owns the engine contract: what a plug-in that runs forward passes offers to the one scheduler and the one sampler.
// Engines know neither HTTP nor actors nor each other.
import type { Batch, StepOutput } from "./batch.ts";

export type EngineName = "llama" | "wasm";

/** What to load and how. Paths are local: finding and downloading a model is engines/hub's work. */
export interface ModelSpec {
  readonly path: string;
  /** Most sequences held at once. */
  readonly maxSequences: number;
  /** Most tokens in one step, prompt chunks and decodes together. */
  readonly maxBatchTokens: number;
  /** Bound on prompt plus output of one sequence; null takes what the model was trained for. */
  readonly maxModelLength: number | null;
  /** KV memory: bytes or tokens in all, or null for 25 % of the memory free at load. */
  readonly kvBudget: { readonly bytes: number } | { readonly tokens: number } | null;
  /** Number type of the KV cache; `auto` leaves it to the engine. */
  readonly kvType: "auto" | "f16" | "f32" | "q8_0" | "q4_0" | "bf16";
  /** Tokens of a block of the KV cache, where the engine has blocks: a multiple of 4. */
  readonly blockTokens: number;
  /** Compute threads; 0 takes one per physical core. */
  readonly threads: number;
  readonly mmap: boolean;
  /** Layers put on a GPU where there is one; -1 takes all, 0 none. */
  readonly gpuLayers: number;
  /** A thread that writes 1 into byte 0 stops the forward pass that runs now, for unloading; null where killing will do. */
  readonly abortFlag: SharedArrayBuffer | null;
  /** A file whose lock models on the same cores hold while they compute; null for a model that has them to itself. */
  readonly computeLock: string | null;
}

/** Fraction of the load that is done, 0..1. */
export type LoadProgress = (fraction: number) => void;

export interface Engine {
  load(spec: ModelSpec, onProgress: LoadProgress): Promise<LoadedModel>;
}

/** What a person or a client may want to know of a loaded model. Plain data. */
export interface ModelCard {
  readonly path: string;
  readonly description: string;
  readonly engine: string;
  readonly backend: string;
  readonly vocabSize: number;
  readonly parameterCount: number;
  readonly tensorBytes: number;
  readonly trainedContext: number;
  /** KV cache of all sequences together. */
  readonly kvCacheBytes: number;
}

/** How much fits. The scheduler admits against these. */
export interface Capacity {
  readonly maxSequences: number;
  readonly maxBatchTokens: number;
  /** Most tokens, prompt and output, of one sequence. */
  readonly sequenceTokens: number;
}

/** What the model can do; sliding-window and recurrent models cannot roll back, so callers ask, never assume. */
export interface Capabilities {
  /** A sequence's tail can be dropped. */
  readonly truncate: boolean;
  /** A prefix can be copied from one slot to another. */
  readonly copyPrefix: boolean;
  /** A sequence's state can be saved as bytes and restored. */
  readonly saveState: boolean;
  /** Different adapters one step can serve; 0 where there are none. */
  readonly adaptersPerStep: number;
}

/** The tokens the decoding loop must know of; text is the agents side's affair. */
export interface TokenClasses {
  /** Tokens that end a generation. */
  readonly endOfGeneration: readonly number[];
}

/** A copy of what a slot held. Only the engine that made it can look into it. */
export type SavedKv = object;

/** The KV cache by slot. A slot is the scheduler's id of a running sequence, 0 <= slot < maxSequences. */
export interface KvCache {
  /** Frees everything slot holds. */
  release(slot: number): void;
  /**
   * A copy of what slot holds, in place of those in `old`, none of which must be used again; null, and they stay as they
   * are, where the copy would hold up the others or there is no room for it.
   */
  save(slot: number, old: readonly SavedKv[]): SavedKv | null;
  /** Puts the first `tokens` tokens of a copy into an empty slot. */
  restore(slot: number, saved: SavedKv, tokens: number): void;
}

export interface LoadedModel {
  readonly card: ModelCard;
  readonly capacity: Capacity;
  readonly capabilities: Capabilities;
  readonly tokens: TokenClasses;
  readonly kv: KvCache;
  /**
   * Token ids of a text by the engine's own tokenizer, control tokens as plain text: the oracle of the agents side's
   * vocabulary. Null where the engine has none.
   */
  readonly tokenize: ((text: string) => Int32Array) | null;
  /** ONE forward pass, synchronous, on the model's own thread. Throws ServerError `model_failed` if the engine does. */
  step(batch: Batch): StepOutput;
  dispose(): void;
}
