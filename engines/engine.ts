// Engine contract: the interface of an engine, which loads a model and runs forward passes. The scheduler and the
// sampler use every engine through this interface. Engines do not depend on HTTP, on actors or on each other.
import type { Batch, StepOutput } from "./batch.ts";
import type { AudioRules } from "./files/projector/audio-projector.ts";
import type { ImageRules } from "./files/projector/image-rules.ts";
import type { GrammarNotation } from "./grammar-source.ts";

/** `llama`: llama.cpp's native libraries; `wasm`: this project's own engine, without native code. */
export type EngineName = "llama" | "wasm";

/**
 * Limit on the KV memory of a model, in bytes, in tokens, or as a fraction (0..1). With a GPU, `fraction` is the
 * share of its total memory that the weights, the KV cache and all other programs together may use. Without a GPU, it
 * is the share of the main memory free at load that the KV cache may use.
 */
export type KvBudget = { readonly bytes: number } | { readonly tokens: number } | { readonly fraction: number };

/** The model to load and its settings. Paths are local: engines/files/hub finds and downloads models. */
export interface ModelSpec {
  /** Path of the GGUF file; for a split model, of its first file. */
  readonly path: string;
  /** Maximum number of sequences in the KV cache at once: the number of slots. */
  readonly maxSequences: number;
  /** Maximum number of tokens in one step, prompt chunks and decodes together. */
  readonly maxBatchTokens: number;
  /**
   * Maximum length of a sequence in tokens, prompt plus output; null: the context length that the model was trained
   * for.
   */
  readonly maxModelLength: number | null;
  /** Limit on the KV memory of all sequences together; null: 25 % of the memory free at load. */
  readonly kvBudget: KvBudget | null;
  /** Number type of the KV cache; `auto`: chosen by the engine. */
  readonly kvType: "auto" | "f16" | "f32" | "q8_0" | "q4_0" | "bf16";
  /** Number of tokens in a KV block; a multiple of 4. */
  readonly blockTokens: number;
  /**
   * true: sequences share one pool of KV memory; false: each sequence has its own KV memory; null: chosen by the
   * engine.
   */
  readonly pagedKv: boolean | null;
  /**
   * Maximum number of logits rows in one step in addition to one per sequence; used for drafts and for prompt logprobs.
   */
  readonly extraLogitsRows: number;
  /** Number of compute threads; 0: one per physical core. */
  readonly threads: number;
  /**
   * Whether the llama engine must be able to collect the inputs of weight matrices (see Calibration). This works only
   * on a CPU, and makes every pass slower. The wasm engine always can.
   */
  readonly collectsInputs?: boolean;
  /** true: map the model file into memory; false: read it. */
  readonly mmap: boolean;
  /**
   * Number of layers to put on GPUs, if there are any. The output matrix counts as one more layer. -1: all, 0: none.
   */
  readonly gpuLayers: number;
  /** Number of layers on each GPU, by the number of the GPU; null or absent: layers are divided by free memory. */
  readonly gpuSplit?: readonly number[] | null;
  /**
   * Abort flag, used for unloading: another thread writes 1 to byte 0 to abort the running forward pass. null: the
   * process is killed instead.
   */
  readonly abortFlag: SharedArrayBuffer | null;
  /**
   * Path of a lock file. The lock is held during each pass, so that models on the same cores take turns. null: no other
   * model uses these cores.
   */
  readonly computeLock: string | null;
  /** Required kind of the model; null or absent: any. The caller checks it after the load. */
  readonly kind?: "text" | "multimodal" | "embedding" | null;
  /** Pooling method to use in place of the encoder's own method; null or absent: the encoder's own method. */
  readonly pooling?: "tokens" | null;
  /** Settings of image input, with the projector file; null or absent: the model accepts no images. */
  readonly images?: ImageSpec | null;
  /** Settings of audio input, with the projector file; null or absent: the model accepts no audio. */
  readonly audio?: AudioSpec | null;
  /**
   * Source of the multi-token prediction heads: the model's own file or the file of an assistant model; null or absent:
   * none are loaded.
   */
  readonly mtp?: MtpSpec | null;
  /** Limits on the LoRA adapters that are loaded later; null or absent: no adapters. */
  readonly adapters?: AdapterLimits | null;
  /**
   * X-LoRA: adapters that a classifier weights for each token; null or absent: none. Cannot be combined with
   * `adapters`.
   */
  readonly mixture?: MixtureSpec | null;
}

/** Projector file, which converts images or audio to embeddings. */
interface ProjectorSpec {
  /** Path of the projector file (mmproj). */
  readonly path: string;
  /** Maximum size of the cached embeddings in bytes. */
  readonly cacheBytes: number;
  /** Maximum size in bytes of the embeddings that the requests in progress hold together. */
  readonly maxMediaBytesInFlight: number;
}

/** Settings of a model's audio input. */
export interface AudioSpec extends AudioRules, ProjectorSpec {
  /** Maximum number of audio parts of a request. */
  readonly maxAudio: number;
  /** Maximum length of an audio file in seconds. */
  readonly maxSeconds: number;
}

/** Settings of a model's image input. */
export interface ImageSpec extends ImageRules, ProjectorSpec {
  /** Maximum length in pixels of the longer edge of an image. Larger images are scaled down. null = no limit. */
  readonly maxEdge: number | null;
  /** Maximum number of images of a request. A video counts as one. */
  readonly maxImages: number;
  /** Maximum number of frames of a video. */
  readonly maxFrames: number;
}

/**
 * X-LoRA (arXiv 2402.07148): two forward passes per token. The first pass runs the base model and yields each token's
 * hidden state after the output norm. From that state a classifier computes one weight per adapter and adapted
 * matrix. The second pass applies the adapters with these weights.
 */
export interface MixtureSpec {
  /** Paths of prepared adapters (engines/files/lora), in the order of the classifier's classes. */
  readonly adapters: readonly string[];
  /** Linear layers of the classifier, in order. */
  readonly classifier: readonly ClassifierLayer[];
  /** Whether a ReLU follows each classifier layer except the last. */
  readonly rectifies: boolean;
  /** true: the classifier's outputs are [layer][adapter]; false: [adapter], one weight per adapter for all layers. */
  readonly layerwise: boolean;
  /**
   * Index of each adapted matrix's layer in the classifier's outputs. Keys are the names of the matrices in the model
   * file. A matrix that is not listed has index 0.
   */
  readonly layers: Readonly<Record<string, number>>;
  /** Temperature of the softmax over a layer's weights: softmax(weights / temperature); null: no softmax. */
  readonly temperature: number | null;
  /** Number of adapters that are used: those with the highest weights. null: all are used. */
  readonly topAdapters: number | null;
  /** Whether a softmax is applied to the weights in use: the `topAdapters` highest, or all if `topAdapters` is null. */
  readonly normalisesTop: boolean;
  /** Factor by which every adapter weight is multiplied. */
  readonly globalWeight: number;
  /** Weight of every adapter in the first pass; 0: the first pass runs the base model. */
  readonly firstPassWeight: number;
  /**
   * Number of decoded tokens (fed one at a time after the prompt) that get their own adapter weights. Later tokens
   * reuse the weights of the last of these tokens and need no first pass. 0: they reuse the weights of the prompt's
   * last token. null: every token gets its own weights.
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

/** Limits on the LoRA adapters of one model. */
export interface AdapterLimits {
  readonly maxAdapters: number;
  /** Maximum rank of an adapted matrix. */
  readonly maxRank: number;
  /** Maximum size of all adapters together, in bytes of their prepared form. */
  readonly maxBytes: number;
}

/** Multi-token prediction (MTP): location of its weights. */
export interface MtpSpec {
  /** Path of the assistant's GGUF file; null: the MTP heads are in the model's own file. */
  readonly path: string | null;
}

/** Called with the completed fraction of the load, 0..1. */
export type LoadProgress = (fraction: number) => void;

export interface Engine {
  /**
   * Loads a model on the calling thread; all steps of the model must run on this thread. Rejects with ServerError
   * `model_file_invalid` if the file is damaged or llama.cpp cannot run it, `unsupported` if the wasm engine cannot run
   * it, and `config_invalid` if the spec does not fit the model or the machine.
   */
  load(spec: ModelSpec, onProgress: LoadProgress): Promise<LoadedModel>;
}

/** Description of a loaded model for users and clients. Plain data. */
export interface ModelCard {
  readonly path: string;
  readonly description: string;
  readonly engine: string;
  readonly backend: string;
  readonly vocabSize: number;
  /** Number of floats of an embedding that replaces a token (images, audio). */
  readonly inputLength: number;
  readonly parameterCount: number;
  readonly tensorBytes: number;
  /** Memory of the weights in bytes, including copies in other layouts. */
  readonly weightBytes: number;
  readonly trainedContext: number;
  /** Size of the KV cache of all sequences together, in bytes. */
  readonly kvCacheBytes: number;
}

/** Limits of a loaded model. The scheduler admits work only within them. */
export interface Capacity {
  readonly maxSequences: number;
  readonly maxBatchTokens: number;
  /** Maximum length of a sequence in tokens, prompt plus output. */
  readonly sequenceTokens: number;
  /** Maximum number of logits rows in one step; at least one per sequence. */
  readonly maxLogitsRows: number;
  /** Number of tokens in a KV block. */
  readonly blockTokens: number;
  /** Number of KV blocks of all sequences together. */
  readonly kvBlocks: number;
}

/** Method that reduces the hidden states of a sequence to one vector; `rank` returns scores instead of a vector. */
export type SequencePooling = "mean" | "cls" | "last" | "rank";
/** Method that computes the pooled output from the hidden states of a sequence; `tokens` returns a vector per token. */
export type Pooling = SequencePooling | "tokens";

/**
 * Features of a loaded model. Callers must check them before use; for example, a sliding-window or recurrent model
 * cannot drop the last tokens of a sequence.
 */
export interface Capabilities {
  /** The last tokens of a sequence can be dropped. */
  readonly truncate: boolean;
  /** KvCache.copyPrefix() is available. */
  readonly copyPrefix: boolean;
  /** Sequence states can be saved and restored: KvCache.save() and the methods below it. */
  readonly saveState: boolean;
  /** true: the model predicts tokens. false: the model is an encoder, which has only pooled outputs. */
  readonly generates: boolean;
  /** Pooling method of the pooled outputs; null: the model has no pooled outputs. */
  readonly pooling: Pooling | null;
  /** Number of floats in a pooled output; with pooling `tokens`, of each token. */
  readonly pooledLength: number;
  /** true: a sequence must be fed whole, as one row, because its tokens also attend to later tokens. */
  readonly wholeSequences: boolean;
  /**
   * true: one pass computes rows of different lengths. false: a step has either decodes, or prompt chunks of equal
   * length.
   */
  readonly mixesLengths: boolean;
  /**
   * Prefill chunk size in tokens: prefill is slow with chunks shorter than `least`, and no faster with chunks longer
   * than `best`.
   */
  readonly chunkTokens: { readonly least: number; readonly best: number };
  /** Maximum number of different adapters in one step; 0: adapters are not supported. */
  readonly adaptersPerStep: number;
  /** Notation of the grammars that constrain outputs; absent: ebnf. */
  readonly grammar?: GrammarNotation;
}

/** Tokens that affect decoding. Conversion between tokens and text is done by the text workers. */
export interface TokenClasses {
  /** Ids of the tokens that end a generation. */
  readonly endOfGeneration: readonly number[];
  /** Ids of the tokens that are never sampled. Ids outside the vocabulary have no effect. */
  readonly suppressed: readonly number[];
}

/** Copy of a slot's content; only the engine that made it can read it. */
export type SavedKv = object;

/**
 * KV cache by slot. A slot is the number that the scheduler gives to a running sequence, 0 <= slot < maxSequences.
 * Memory is counted in blocks. If sequences share one pool, a slot has only the blocks reserved for it.
 */
export interface KvCache {
  /** Number of blocks available to reserve() and import(). */
  readonly freeBlocks: number;
  /** Identifies the format of export() bytes: engine, number type, layout and version. The model is not part of it. */
  readonly layout: string;
  /**
   * Reserves blocks for the first `tokens` tokens of a slot; the slot's content stays. Returns false and changes
   * nothing if too few blocks are free. Call before every step that feeds tokens up to that position.
   */
  reserve(slot: number, tokens: number): boolean;
  /** Frees the slot's content and blocks. */
  release(slot: number): void;
  /** Copies the first `tokens` tokens of slot `from` to the empty slot `to`. Needs capability copyPrefix. */
  copyPrefix(from: number, to: number, tokens: number): void;
  /**
   * Copies the first `tokens` tokens of a slot (default: all) and drops the slot's later tokens. Returns null if there
   * is no room for the copy. This method and those below need capability saveState.
   */
  save(slot: number, tokens?: number): SavedKv | null;
  /** Frees a copy. The copy must not be used afterwards. */
  drop(saved: SavedKv): void;
  /**
   * Puts the first `tokens` tokens of a copy into an empty slot. Models without capability truncate can restore only
   * whole copies.
   */
  restore(slot: number, saved: SavedKv, tokens: number): void;
  /**
   * Returns the content of a copy as bytes. The bytes stay valid after the copy is dropped and after the process ends.
   */
  export(saved: SavedKv): Uint8Array;
  /**
   * Inverse of export(), for bytes with the same `layout` that hold `tokens` tokens. Returns null if there is no room.
   */
  import(bytes: Uint8Array, tokens: number): SavedKv | null;
}

/** Sequence to draft tokens for. `tokens` holds `total` tokens; the model has not yet been fed the last one. */
export interface DraftTarget {
  readonly slot: number;
  readonly total: number;
  readonly tokens: Int32Array;
  readonly draft: Int32Array | null;
  draftCount: number;
}

/**
 * Multi-token prediction (MTP): heads that predict tokens from the model's hidden states. They process the results of
 * every step automatically. Their context for a slot may begin at any position of the sequence; this affects only the
 * quality of drafts.
 */
export interface MtpHeads {
  /** Draft length that the heads were trained for; longer drafts are possible. */
  readonly trainedTokens: number;
  /**
   * Whether tokens can be drafted for a slot with `total` tokens: true if the hidden state needed for drafting is
   * available.
   */
  follows(slot: number, total: number): boolean;
  /**
   * Drafts up to `depths[i]` tokens for `targets[i]` and stores them in the target's `draft` and `draftCount`. `choose`
   * picks a token from row `row` of the heads' logits, shape [row][vocabSize]. When `choose` is called, the target's
   * `draftCount` is the number of tokens drafted so far.
   */
  propose<T extends DraftTarget>(
    targets: readonly T[],
    depths: Int32Array,
    choose: (target: T, logits: Float32Array, row: number) => number,
  ): void;
}

/** The loaded LoRA adapters. Rows of a step refer to them by id. */
export interface AdapterHost {
  /**
   * Loads a prepared adapter (engines/files/lora) under a new id, which must be > 0 and never used before. Steps
   * continue during the load; rows may use the id after the promise has resolved. Rejects with
   * `lora_device_load_failed`, or with `invalid_lora_adapter` if the adapter changes a matrix that this engine cannot
   * adapt. A failed load changes nothing.
   */
  load(id: number, path: string): Promise<void>;
  /** Frees an adapter. Call between steps, and only if no later row uses the id. */
  unload(id: number): void;
}

/**
 * Statistics of the inputs of one weight matrix, summed over its input rows. For a stack of matrices (experts), the
 * arrays contain the values of each matrix, one after another.
 */
export interface InputSums {
  /** Name of the matrix in the model file. */
  readonly name: string;
  /** For each column of a matrix: the sum of the squares of its inputs. */
  readonly squares: Float32Array;
  /** For each matrix: the number of input rows. */
  readonly rows: Float32Array;
}

/**
 * Collects statistics of the inputs of all weight matrices in the layers. An importance matrix is computed from them.
 * Off at first.
 */
export interface Calibration {
  readonly isCollecting: boolean;
  /** Starts to collect; earlier sums are dropped. Call between steps. */
  start(): void;
  /** Ends collecting and drops the sums. Call between steps. */
  stop(): void;
  /** Returns the sums of all matrices, including matrices without input rows. */
  sums(): readonly InputSums[];
}

/** A loaded model. All calls must be made on the thread that loaded it, and none during a step. */
export interface LoadedModel {
  readonly card: ModelCard;
  readonly capacity: Capacity;
  readonly capabilities: Capabilities;
  readonly tokens: TokenClasses;
  readonly kv: KvCache;
  /**
   * Tokenizes a text with the engine's own tokenizer; the text of control tokens is read as plain text. Used to verify
   * the vocabulary of the text workers. null: the engine has no tokenizer.
   */
  readonly tokenize: ((text: string) => Int32Array) | null;
  /** Multi-token prediction heads; null or absent: none. */
  readonly mtp?: MtpHeads | null;
  /** Loaded adapters; null or absent: the model does not support adapters. */
  readonly adapters?: AdapterHost | null;
  /** Collects the inputs of the weight matrices; null or absent: the engine cannot collect them. */
  readonly calibration?: Calibration | null;
  /**
   * Runs ONE forward pass, synchronously, on the model's own thread. Throws ServerError `model_failed` if the engine
   * fails.
   */
  step(batch: Batch): StepOutput;
  /** Frees all memory of the model, its KV cache and adapters. Call once; no other call may follow. */
  dispose(): void;
}
