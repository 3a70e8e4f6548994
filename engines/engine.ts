// Engine contract: the interface of an engine, which loads a model and runs forward passes. One scheduler and one
// sampler drive every engine through it. Engines know neither HTTP nor actors nor each other.
import type { Batch, StepOutput } from "./batch.ts";

/** `llama`: llama.cpp's native libraries; `wasm`: this project's own engine, without native code. */
export type EngineName = "llama" | "wasm";

/**
 * Bound on the KV memory of a model. `fraction`, 0..1: share of a GPU's total memory that the weights, the KV cache and
 * all other programs may fill together; without a GPU, share of the main memory free at load.
 */
export type KvBudget = { readonly bytes: number } | { readonly tokens: number } | { readonly fraction: number };

/** What to load, and with which settings. Paths are local: engines/files/hub finds and downloads models. */
export interface ModelSpec {
  /** GGUF file; of a split model, its first file. */
  readonly path: string;
  /** Most sequences held at once: the number of slots. */
  readonly maxSequences: number;
  /** Most tokens of one step, prompt chunks and decodes together. */
  readonly maxBatchTokens: number;
  /** Most tokens, prompt plus output, of one sequence; null: the context length of the model's training. */
  readonly maxModelLength: number | null;
  /** Bound on the KV memory of all sequences together; null: 25 % of the memory free at load. */
  readonly kvBudget: KvBudget | null;
  /** Number type of the KV cache; `auto`: the engine's choice. */
  readonly kvType: "auto" | "f16" | "f32" | "q8_0" | "q4_0" | "bf16";
  /** Tokens of a KV block; a multiple of 4. */
  readonly blockTokens: number;
  /** true: sequences share one pool of KV memory; false: each has its own; null: the engine's choice. */
  readonly pagedKv: boolean | null;
  /** Most logits rows of one step beyond one per sequence, for drafts and the logprobs of prompts. */
  readonly extraLogitsRows: number;
  /** Compute threads; 0: one per physical core. */
  readonly threads: number;
  /** Map the model file into memory instead of reading it. */
  readonly mmap: boolean;
  /** Layers put on a GPU, if there is one; -1: all, 0: none. */
  readonly gpuLayers: number;
  /**
   * Writing 1 to byte 0, from another thread, aborts the running forward pass, for unloading; null: the process is
   * killed instead.
   */
  readonly abortFlag: SharedArrayBuffer | null;
  /**
   * Path of a file whose lock is held during each pass, so that models on the same cores take turns; null: the model
   * shares its cores with no other.
   */
  readonly computeLock: string | null;
  /** Kind that the model must have; null or absent: any. Checked by the caller after the load. */
  readonly kind?: "text" | "embedding" | null;
  /** Have the model's prediction heads loaded, or those of an assistant made for it; left out, it has none. */
  readonly mtp?: MtpSpec | null;
  /** Bounds on the LoRA adapters loaded later; null or absent: no adapters. */
  readonly adapters?: AdapterLimits | null;
  /** X-LoRA: adapters that a classifier weights per token; null or absent: none. Cannot be combined with `adapters`. */
  readonly mixture?: MixtureSpec | null;
}

/**
 * X-LoRA (arXiv 2402.07148). A first pass of the base model gives each token's hidden state behind the output norm. A
 * classifier turns it into one weight per adapter and changed matrix. A second pass runs with the adapters weighted so.
 */
export interface MixtureSpec {
  /** Paths of prepared adapters (engines/files/lora), in the order of the classifier's classes. */
  readonly adapters: readonly string[];
  /** Linear layers of the classifier, in order. */
  readonly classifier: readonly ClassifierLayer[];
  /** A ReLU between the classifier's layers. */
  readonly rectifies: boolean;
  /** true: the classifier's outputs are [layer][adapter]; false: [adapter], one weight per adapter for all layers. */
  readonly layerwise: boolean;
  /**
   * Layer index in those outputs by name (in the model file) of each matrix that any adapter changes; absent names: 0.
   */
  readonly layers: Readonly<Record<string, number>>;
  /** A layer's weights become softmax(weights / temperature); null: no softmax. */
  readonly temperature: number | null;
  /** Only the adapters with this many highest weights count; null: all. */
  readonly topAdapters: number | null;
  /** The remaining weights go through a softmax: those of `topAdapters`, or all of them. */
  readonly normalisesTop: boolean;
  /** Factor on every weight. */
  readonly globalWeight: number;
  /** Weight of every adapter in the first pass; 0: the base model. */
  readonly firstPassWeight: number;
  /**
   * A sequence keeps the weights of the last of this many tokens fed singly, and then needs no first pass; 0: it keeps
   * those of its prompt's last token; null: never.
   */
  readonly keptAfter: number | null;
}

/** Linear layer y = W x + b in floats. */
export interface ClassifierLayer {
  readonly rows: number;
  readonly columns: number;
  /** Shape [rows][columns], row-major. */
  readonly weight: Float32Array;
  readonly bias: Float32Array | null;
}

/** Bounds on the LoRA adapters of one model. */
export interface AdapterLimits {
  readonly maxAdapters: number;
  /** Highest rank of a matrix. */
  readonly maxRank: number;
  /** Bytes of all adapters together, in prepared form. */
  readonly maxBytes: number;
}

/** Multi-token prediction (MTP): where its weights are. */
export interface MtpSpec {
  /** Path of the assistant's GGUF file; null: the model's own file has the MTP heads. */
  readonly path: string | null;
}

/** Receives the completed fraction of the load, 0..1. */
export type LoadProgress = (fraction: number) => void;

export interface Engine {
  /**
   * Loads a model on the calling thread, which then runs all its steps. Rejects with ServerError `model_file_invalid`
   * if the file is damaged or llama.cpp cannot run it, `unsupported` if the wasm engine cannot, and `config_invalid` if
   * the spec does not fit the model or the machine.
   */
  load(spec: ModelSpec, onProgress: LoadProgress): Promise<LoadedModel>;
}

/** Facts about a loaded model for users and clients. Plain data. */
export interface ModelCard {
  readonly path: string;
  readonly description: string;
  readonly engine: string;
  readonly backend: string;
  readonly vocabSize: number;
  readonly parameterCount: number;
  readonly tensorBytes: number;
  /** Bytes of memory of the weights, copies in other layouts included. */
  readonly weightBytes: number;
  readonly trainedContext: number;
  /** Bytes of the KV cache of all sequences together. */
  readonly kvCacheBytes: number;
}

/** Limits of a loaded model; the scheduler admits work against them. */
export interface Capacity {
  readonly maxSequences: number;
  readonly maxBatchTokens: number;
  /** Most tokens of one sequence, prompt plus output. */
  readonly sequenceTokens: number;
  /** Most logits rows of one step; at least one per sequence. */
  readonly maxLogitsRows: number;
  /** Tokens of a KV block. */
  readonly blockTokens: number;
  /** KV blocks of all sequences together. */
  readonly kvBlocks: number;
}

/** How the hidden states of a sequence become one vector; `rank` gives scores instead. */
export type Pooling = "mean" | "cls" | "last" | "rank";

/**
 * Features of a loaded model. Callers must check them: a sliding-window or recurrent model cannot roll back, for
 * example.
 */
export interface Capabilities {
  /** The tail of a sequence can be dropped. */
  readonly truncate: boolean;
  /** KvCache.copyPrefix() is available. */
  readonly copyPrefix: boolean;
  /** Sequence states can be saved and restored: KvCache.save() and the methods after it. */
  readonly saveState: boolean;
  /** The model predicts tokens. False: an encoder, which only has pooled outputs. */
  readonly generates: boolean;
  /** Pooling of the pooled outputs; null: the model has none. */
  readonly pooling: Pooling | null;
  /** Floats of one pooled output. */
  readonly pooledLength: number;
  /** A sequence must be fed whole, as one row, because its tokens also attend to later ones. */
  readonly wholeSequences: boolean;
  /**
   * One pass computes rows of different lengths. False: a step has either decodes, or prompt chunks of equal length.
   */
  readonly mixesLengths: boolean;
  /** Chunk size in tokens: prefill is slow below `least`, and gets no faster above `best`. */
  readonly chunkTokens: { readonly least: number; readonly best: number };
  /** Number of different adapters in one step; 0: no adapters. */
  readonly adaptersPerStep: number;
}

/** Tokens with a meaning for decoding. Text is the text workers' concern. */
export interface TokenClasses {
  /** Ids of the tokens that end a generation. */
  readonly endOfGeneration: readonly number[];
}

/** Copy of a slot's content, opaque to all but the engine that made it. */
export type SavedKv = object;

/**
 * KV cache by slot. A slot is the scheduler's number of a running sequence, 0 <= slot < maxSequences. Memory is counted
 * in blocks. If sequences share one pool, a slot has only the blocks reserved for it.
 */
export interface KvCache {
  /** Blocks that reserve() and import() can still take. */
  readonly freeBlocks: number;
  /** Identifies the format of export() bytes besides the model: engine, number type, layout, version. */
  readonly layout: string;
  /**
   * Makes room for the first `tokens` tokens of a slot, and keeps its content. Returns false and changes nothing if too
   * few blocks are free. Call before every step that feeds tokens up to that position.
   */
  reserve(slot: number, tokens: number): boolean;
  /** Frees the slot's content and blocks. */
  release(slot: number): void;
  /** Copies the first `tokens` tokens of slot `from` to the empty slot `to`. Capability copyPrefix. */
  copyPrefix(from: number, to: number, tokens: number): void;
  /**
   * Copies the first `tokens` tokens of a slot (default: all) and drops those behind them. Returns null if there is no
   * room. This method and those below need capability saveState.
   */
  save(slot: number, tokens?: number): SavedKv | null;
  /** Frees a copy, which must not be used afterwards. */
  drop(saved: SavedKv): void;
  /**
   * Puts the first `tokens` tokens of a copy into an empty slot; a model without capability truncate restores only
   * whole copies.
   */
  restore(slot: number, saved: SavedKv, tokens: number): void;
  /** The content of a copy as separate bytes, which outlive the copy and the process. */
  export(saved: SavedKv): Uint8Array;
  /** Inverse of export() for bytes of the same `layout` with `tokens` tokens; null if there is no room. */
  import(bytes: Uint8Array, tokens: number): SavedKv | null;
}

/** A sequence to draft for. `tokens` holds `total` tokens; the model has not yet been fed the last one. */
export interface DraftTarget {
  readonly slot: number;
  readonly total: number;
  readonly tokens: Int32Array;
  readonly draft: Int32Array | null;
  draftCount: number;
}

/**
 * Multi-token prediction (MTP): heads that predict tokens from the model's hidden states. They read every step without
 * being asked. Their context of a slot may begin anywhere in it, which affects only the quality of drafts.
 */
export interface MtpHeads {
  /** Draft length of the heads' training; longer drafts are possible. */
  readonly trainedTokens: number;
  /** Whether the hidden state needed to draft behind the last of `total` tokens is available. */
  follows(slot: number, total: number): boolean;
  /**
   * Drafts up to `depths[i]` tokens for `targets[i]`: fills its `draft` and `draftCount`. `choose` picks a token from
   * row `row` of the heads' logits, [row][vocabSize]; the target's `draftCount` is the number of tokens drafted before
   * it.
   */
  propose<T extends DraftTarget>(
    targets: readonly T[],
    depths: Int32Array,
    choose: (target: T, logits: Float32Array, row: number) => number,
  ): void;
}

/** The loaded LoRA adapters, which the rows of a step name by id. */
export interface AdapterHost {
  /**
   * Loads a prepared adapter (engines/files/lora) under a new id, which must be > 0 and never used before. Steps
   * continue during the load; rows may name the id once the promise resolves. Rejects with `lora_device_load_failed`,
   * or with `invalid_lora_adapter` if the adapter changes a matrix that this engine cannot adapt; nothing has changed
   * then.
   */
  load(id: number, path: string): Promise<void>;
  /** Frees an adapter that no later row names. Call between steps. */
  unload(id: number): void;
}

/** A loaded model. All calls are made on the thread that loaded it, none during a step. */
export interface LoadedModel {
  readonly card: ModelCard;
  readonly capacity: Capacity;
  readonly capabilities: Capabilities;
  readonly tokens: TokenClasses;
  readonly kv: KvCache;
  /**
   * Token ids of a text from the engine's own tokenizer, with control tokens as plain text. It verifies the text
   * workers' vocabulary. Null: the engine has no tokenizer.
   */
  readonly tokenize: ((text: string) => Int32Array) | null;
  /** Null or absent: no MTP. */
  readonly mtp?: MtpHeads | null;
  /** Null or absent: no adapters. */
  readonly adapters?: AdapterHost | null;
  /**
   * Runs ONE forward pass, synchronously, on the model's own thread. Throws ServerError `model_failed` if the engine
   * fails.
   */
  step(batch: Batch): StepOutput;
  /** Frees all memory of the model, its KV cache and adapters. Call once; no other call may follow. */
  dispose(): void;
}
