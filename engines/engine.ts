// Owns the engine contract: what a plug-in that runs forward passes offers to the one scheduler and the one sampler.
// Engines know neither HTTP nor actors nor each other.
import type { Batch, StepOutput } from "./batch.ts";

export type EngineName = "llama" | "wasm";

/** A fraction is of a GPU's memory, weights and what others use included, or else of the main memory free at load. */
export type KvBudget = { readonly bytes: number } | { readonly tokens: number } | { readonly fraction: number };

/** What to load and how. Paths are local: finding and downloading a model is engines/hub's work. */
export interface ModelSpec {
  readonly path: string;
  /** Most sequences held at once. */
  readonly maxSequences: number;
  /** Most tokens in one step, prompt chunks and decodes together. */
  readonly maxBatchTokens: number;
  /** Bound on prompt plus output of one sequence; null takes what the model was trained for. */
  readonly maxModelLength: number | null;
  /** KV memory of all sequences together; null for 25 % of the memory free at load. */
  readonly kvBudget: KvBudget | null;
  /** Number type of the KV cache; `auto` leaves it to the engine. */
  readonly kvType: "auto" | "f16" | "f32" | "q8_0" | "q4_0" | "bf16";
  /** Tokens of a block of the KV cache: a multiple of 4. */
  readonly blockTokens: number;
  /** Whether sequences share one pool of KV memory; null leaves it to an engine that can do both. */
  readonly pagedKv: boolean | null;
  /** Logits rows of one step beyond one a sequence: drafts and the logprobs of prompts take them. */
  readonly extraLogitsRows: number;
  /** Compute threads; 0 takes one per physical core. */
  readonly threads: number;
  readonly mmap: boolean;
  /** Layers put on a GPU where there is one; -1 takes all, 0 none. */
  readonly gpuLayers: number;
  /** A thread that writes 1 into byte 0 stops the forward pass that runs now, for unloading; null where killing will do. */
  readonly abortFlag: SharedArrayBuffer | null;
  /** A file whose lock models on the same cores hold while they compute; null for a model that has them to itself. */
  readonly computeLock: string | null;
  /** Kind that the model must have; null or absent: any. Checked by the caller after the load. */
  readonly kind?: "text" | "embedding" | null;
  /** Have the model's prediction heads loaded, or those of an assistant made for it; left out, it has none. */
  readonly mtp?: MtpSpec | null;
  /** What adapters it may be given later; left out, none. */
  readonly adapters?: AdapterLimits | null;
  /** Adapters that a classifier weighs anew for every token (X-LoRA); left out, none. Not beside `adapters`. */
  readonly mixture?: MixtureSpec | null;
}

/**
 * X-LoRA (arXiv 2402.07148): a pass of the base model gives each token's hidden state behind the output norm; a classifier
 * makes of it a weight for each adapter and each matrix they change; a second pass runs with the adapters so weighted.
 */
export interface MixtureSpec {
  /** Paths of prepared adapters (engines/lora/), in the order of the classifier's classes. */
  readonly adapters: readonly string[];
  /** Its linear layers in order, a rectifier between them where `rectifies`. */
  readonly classifier: readonly ClassifierLayer[];
  readonly rectifies: boolean;
  /** The classifier's outputs count as [layer][adapter]; without layers of its own, one weight an adapter serves all. */
  readonly layerwise: boolean;
  /** Layer in those outputs of each matrix that any adapter changes, by its tensor's name in the model file; without, 0. */
  readonly layers: Readonly<Record<string, number>>;
  /** Weights of a layer become softmax(weights / temperature); null: they stay as they are. */
  readonly temperature: number | null;
  /** Only so many adapters, those of the greatest weights, count; null: all. */
  readonly topAdapters: number | null;
  /** The weights of those that are left go through a softmax of their own: all of them where topAdapters is null. */
  readonly normalisesTop: boolean;
  /** Every adapter counts so many times its weight. */
  readonly globalWeight: number;
  /** What every adapter weighs in the first pass; 0: that pass is of the base model. */
  readonly firstPassWeight: number;
  /**
   * After so many tokens fed one by one a sequence keeps the weights of the last of them, and is spared the first pass; 0:
   * those of its prompt's last token. null: never.
   */
  readonly keptAfter: number | null;
}

/** y = W x + b, values as floats. */
export interface ClassifierLayer {
  readonly rows: number;
  readonly columns: number;
  /** [rows][columns] */
  readonly weight: Float32Array;
  readonly bias: Float32Array | null;
}

/** Bounds on the LoRA adapters of one model. */
export interface AdapterLimits {
  readonly maxAdapters: number;
  /** Highest rank of a matrix. */
  readonly maxRank: number;
  /** Of all adapters together, as prepared. */
  readonly maxBytes: number;
}

export interface MtpSpec {
  /** The assistant's file; null where the heads are in the model's own. */
  readonly path: string | null;
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
  /** Memory that the weights take, copies in another layout included. */
  readonly weightBytes: number;
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
  /** Most logits rows of one step, at least one a sequence. */
  readonly maxLogitsRows: number;
  /** Tokens of a block, and blocks of all sequences together. */
  readonly blockTokens: number;
  readonly kvBlocks: number;
}

/** How the hidden states of a sequence become one vector; `rank` gives scores instead. */
export type Pooling = "mean" | "cls" | "last" | "rank";

/** What the model can do; sliding-window and recurrent models cannot roll back, so callers ask, never assume. */
export interface Capabilities {
  /** A sequence's tail can be dropped. */
  readonly truncate: boolean;
  /** A prefix can be copied from one slot to another. */
  readonly copyPrefix: boolean;
  /** A sequence's state can be saved and restored. */
  readonly saveState: boolean;
  /** It predicts tokens. False for encoders, which have pooled outputs alone. */
  readonly generates: boolean;
  /** How it pools; null where it has no pooled outputs. */
  readonly pooling: Pooling | null;
  /** Floats of a pooled output. */
  readonly pooledLength: number;
  /** A sequence must be fed whole, as one row: its tokens look at those behind them too. */
  readonly wholeSequences: boolean;
  /** Rows of different lengths are computed in one pass. Where not, a step has decodes, or prompt chunks of one length. */
  readonly mixesLengths: boolean;
  /** Chunk size in tokens: below `least` prefill is slow, above `best` it gets no faster. */
  readonly chunkTokens: { readonly least: number; readonly best: number };
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

/**
 * The KV cache by slot. A slot is the scheduler's id of a running sequence, 0 <= slot < maxSequences. Memory is counted in
 * blocks; where sequences share one pool a slot has what was reserved for it and no more.
 */
export interface KvCache {
  /** Blocks that reserve() and import() can still take. */
  readonly freeBlocks: number;
  /** Names what the bytes of export() depend on beside the model: engine, number type, layout, version. */
  readonly layout: string;
  /**
   * Makes room for the first `tokens` tokens of a slot; what it holds stays. False, and nothing changes, where too few
   * blocks are free. To be called before every step that feeds tokens up to there.
   */
  reserve(slot: number, tokens: number): boolean;
  /** Frees everything slot holds. */
  release(slot: number): void;
  /** Puts the first `tokens` tokens that `from` holds into the empty slot `to`. Capability copyPrefix. */
  copyPrefix(from: number, to: number, tokens: number): void;
  /**
   * A copy of the first `tokens` tokens that slot holds, or of all: what follows them is dropped. Null where there is no
   * room for it. Capability saveState, like all that follow.
   */
  save(slot: number, tokens?: number): SavedKv | null;
  /** Frees a copy, which must not be used again. */
  drop(saved: SavedKv): void;
  /** Puts the first `tokens` tokens of a copy into an empty slot; all of them where the model cannot truncate. */
  restore(slot: number, saved: SavedKv, tokens: number): void;
  /** The content of a copy as bytes of their own, which outlive the copy and the process. */
  export(saved: SavedKv): Uint8Array;
  /** The copy that bytes of an export() with the same layout were, or null where there is no room for its `tokens`. */
  import(bytes: Uint8Array, tokens: number): SavedKv | null;
}

/** A sequence that is to be drafted for: the last of its `total` tokens is the one the model has yet to see. */
export interface DraftTarget {
  readonly slot: number;
  readonly total: number;
  readonly tokens: Int32Array;
  readonly draft: Int32Array | null;
  draftCount: number;
}

/**
 * Heads that predict tokens from the model's hidden states. They follow every step by themselves. What they hold of a slot
 * may begin anywhere: it bears on how good their drafts are, and on nothing else.
 */
export interface MtpHeads {
  /** Tokens they were made to draft at once; they can draft more. */
  readonly trainedTokens: number;
  /** Whether the hidden state is at hand that a draft behind the last of `total` tokens is made from. */
  follows(slot: number, total: number): boolean;
  /**
   * Drafts up to `depths[i]` tokens for `targets[i]`: fills its `draft` and `draftCount`. `choose` picks a token by row
   * `row` of the heads' logits; the target's `draftCount` says how many come before it.
   */
  propose<T extends DraftTarget>(
    targets: readonly T[],
    depths: Int32Array,
    choose: (target: T, logits: Float32Array, row: number) => number,
  ): void;
}

/** The LoRA adapters that steps may name. */
export interface AdapterHost {
  /**
   * Loads a prepared adapter (engines/lora/) of this model under an id above 0 that no other has had. Steps go on
   * meanwhile; once it resolves rows may name the id. Throws lora_device_load_failed, or invalid_lora_adapter where it
   * changes what this engine adds no adapter to, and nothing has changed.
   */
  load(id: number, path: string): Promise<void>;
  /** Frees an adapter that no row of a later step names. Between steps. */
  unload(id: number): void;
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
  /** Left out, or null, where there are none. */
  readonly mtp?: MtpHeads | null;
  /** Left out, or null, where it takes none. */
  readonly adapters?: AdapterHost | null;
  /** ONE forward pass, synchronous, on the model's own thread. Throws ServerError `model_failed` if the engine does. */
  step(batch: Batch): StepOutput;
  dispose(): void;
}
