// Inference: the interface that http/ uses to list models, generate and embed. Implemented by
// actors/front/inference-service.ts; the tests of http/ use a small implementation instead.
import type { DiffusionCard } from "../../engines/diffusion/diffusion.ts";
import type { AdapterSelector, GenerateEvent, GenerateRequest, Prompt, ToolUse } from "../../engines/generation.ts";
import type { GenerationDefaults } from "../../engines/sampling-defaults.ts";
import type { SpeechCard, SpeechEngineName, SpeechTask } from "../../engines/speech/speech.ts";
import type { ShownTokens } from "../../engines/text/tokenizer/token-texts.ts";
import type { BodyToTranslate } from "./body-translators.ts";
import type { EngineMetric } from "./engine-metric.ts";

export type ModelStatus = "loaded" | "unloaded" | "reloading";

/** One entry of GET /v1/models. */
export interface ModelEntry {
  readonly id: string;
  readonly status: ModelStatus;
  /** Creation time of the model's entry, in Unix seconds. */
  readonly createdAt: number;
  /** Path of the model's GGUF file on this machine; for a split model, of its first file. */
  readonly path: string;
  /** Whether a client had the server download the model; absent: it is one of the settings. */
  readonly isDownloaded?: boolean;
  readonly defaults: GenerationDefaults;
  /** Fraction of the load in progress, 0..1; null: the model is not being loaded. */
  readonly loadProgress: number | null;
  /** The last change of the weights' quantization; null or absent: none since the server was started. */
  readonly requantization?: Requantization | null;
  /** Capabilities of the model; null until it is loaded for the first time. */
  readonly capabilities: ModelCapabilities | null;
  /** Adapters that requests can select, in the order in which they were loaded. */
  readonly adapters: readonly AdapterEntry[];
  /** Whether the model makes images; absent: it computes tokens. */
  readonly isDiffusion?: boolean;
  /** Task and engine of a speech model; null or absent: the model computes tokens. */
  readonly speech?: { readonly task: SpeechTask; readonly engine: SpeechEngineName } | null;
  /** Why the last load failed; null or absent: it did not. */
  readonly loadError?: string | null;
}

/** Change of the quantization of a model's weights: the last one, or the one in progress. */
export interface Requantization {
  /** Name of the quantization level, for example Q4_K. */
  readonly level: string;
  readonly status: "converting" | "loading" | "done" | "failed";
  /** Fraction of the conversion, 0..1. */
  readonly progress: number;
  /** Why it failed; null: it has not. */
  readonly error: string | null;
}

export interface AdapterEntry {
  readonly alias: string;
  /** Content hash of the adapter, 64 hex digits. */
  readonly generation: string;
  /** Time at which the adapter was loaded, in Unix seconds. */
  readonly createdAt: number;
}

/** The model and adapter that a model name in a request refers to. */
export interface ResolvedModel {
  readonly id: string;
  /** Adapter that the name selects; null: the name contains no adapter alias. */
  readonly adapter: AdapterSelector | null;
  readonly defaults: GenerationDefaults;
  /** Whether the model takes audio; absent: no. */
  readonly takesAudio?: boolean;
}

export interface ModelCapabilities {
  readonly generates: boolean;
  /** Whether the model takes images; absent: no. */
  readonly takesImages?: boolean;
  /** Whether the model takes audio; absent: no. */
  readonly takesAudio?: boolean;
  readonly embeds: boolean;
  /** Whether an embedding is a vector for each token (ColBERT); absent: it is one vector. */
  readonly embedsTokens?: boolean;
  /** Maximum number of tokens of prompt and output together. */
  readonly maxModelLength: number;
  /** Context length in tokens for which the model was trained. */
  readonly trainedContext: number;
  readonly parameterCount: number;
  /** Size of the weights in the file, in bytes. */
  readonly weightBytes: number;
  /** Size of the KV cache of all sequences together, in bytes. */
  readonly kvCacheBytes: number;
  /** Number of floats in an embedding; 0 if the model has none. */
  readonly embeddingLength: number;
  /** Facts from the model's file; null if the generation thread did not run when the model was loaded. */
  readonly file: ModelFileFacts | null;
  /** Facts of a diffusion model; null or absent: the model computes tokens. */
  readonly diffusion?: DiffusionCard | null;
  /** Facts of a speech model; null or absent: the model computes tokens. */
  readonly speech?: SpeechCard | null;
}

/** Facts from a model's file. */
export interface ModelFileFacts {
  /** Name of the architecture, for example qwen3. */
  readonly architecture: string;
  /** Number type of most weights, for example Q4_K_M; null: unknown. */
  readonly weightType: string | null;
  /** SHA-256 of the file's head (metadata and list of tensors), 64 hex digits. */
  readonly headDigest: string;
  /** Whether the model has a chat template that can be used. */
  readonly chats: boolean;
  /** Whether the chat template marks reasoning. */
  readonly reasons: boolean;
}

/**
 * Texts, or prompts as tokens of the model's vocabulary. They are packed in a few buffers, so that tens of megabytes move
 * between threads without a copy.
 */
export type EmbedInputs =
  | {
      readonly kind: "texts";
      /** All texts, concatenated, in UTF-8. */
      readonly values: Uint8Array;
      /** Byte offset of the end of each text in `values`. */
      readonly ends: Uint32Array;
    }
  | { readonly kind: "tokens"; readonly values: Int32Array; readonly ends: Uint32Array };

export interface EmbedRequest {
  /** Id of a loaded model. */
  readonly model: string;
  /** Identifies the client. Requests are scheduled fairly between clients. Never an API key itself. */
  readonly client: string;
  readonly inputs: EmbedInputs;
  /** Text with which each input is scored. Absent: vectors are computed instead of scores. */
  readonly query?: string;
  /** What the texts are for the model, such as `query` or `document`. Absent: the model's default. */
  readonly inputType?: string;
  /** Whether the caller takes a vector for each token. If not, such a model is refused. */
  readonly takesTokenVectors?: boolean;
  /** Number of leading elements of a vector to keep, before it is scaled to length 1. Absent: all. */
  readonly dimensions?: number;
  /** Whether to cut the end of an input that is too long. If false, such an input is rejected. */
  readonly truncateInputs: boolean;
  /** Priority: requests with lower values are served first. The default is 0. */
  readonly priority: number;
}

export interface Embeddings {
  /**
   * For each input, in order: a vector of Euclidean length 1; such a vector for each token, one after another; or the model's
   * scores for the input and the query.
   */
  readonly vectors: readonly Float32Array[];
  /** Length of the vector of a token; absent: there is one vector for each input. */
  readonly tokenVectorLength?: number;
  /**
   * Whether each score is the sum, over the query's vectors, of the largest product with a vector of the input (MaxSim).
   * Absent: scores are outputs of the model.
   */
  readonly isMaxSim?: boolean;
  readonly promptTokens: number;
}

/** Text, a chat, or tokens to convert with a model's tokenizer. */
export type TokenSource =
  | {
      readonly kind: "text";
      readonly text: string;
      /** Whether to add the BOS token, if the model requires it. */
      readonly addsSpecial: boolean;
      /** Whether the names of control tokens in the text become these tokens. If false, they are plain text. */
      readonly readsControl: boolean;
    }
  | {
      readonly kind: "chat";
      readonly prompt: Extract<Prompt, { readonly kind: "chat" }>;
      readonly tools: ToolUse | null;
    }
  | { readonly kind: "tokens"; readonly tokens: Int32Array };

export interface TokensRequest {
  readonly model: string;
  readonly client: string;
  readonly source: TokenSource;
  /** Whether to return the text of each token too. */
  readonly wantsPieces: boolean;
}

export interface ConvertedTokens {
  readonly tokens: Int32Array;
  /** Text of the tokens; null unless the source is tokens. */
  readonly text: string | null;
  /** Text of each token, or its bytes if they are not UTF-8; null: not requested. */
  readonly pieces: readonly (string | readonly number[])[] | null;
  /** Maximum number of tokens of prompt and output together. */
  readonly maxModelLength: number;
}

export interface Inference {
  /** Returns the reasons why no request can be served now, as text; empty: none. */
  faults(): readonly string[];
  /** Returns all models in configured order. */
  models(): readonly ModelEntry[];
  /**
   * Resolves a model name. undefined and "default" mean the default model. `<model>::<alias>` means that model with that
   * adapter. The alias alone has the same meaning if only one model has it. Throws model_not_found.
   */
  resolveModel(requested: string | undefined): ResolvedModel;
  /**
   * Starts a generation. Each iteration yields all events that are ready, in order. A consumer that stops iterating applies
   * back pressure: the sequences pause when the bounded stream is full. Aborting the signal cancels the sequences before
   * the next step and ends the iteration. Failures (queue full, model loading, engine crash) arrive as one final `error`
   * event; they are never thrown. `onPrepared` is called when the prompt has been tokenised and the request's content is
   * released, and again when the generation has ended. Sealed content is transferred to another thread, so a request with
   * sealed content cannot be sent twice.
   */
  generate(
    request: GenerateRequest,
    signal: AbortSignal,
    onPrepared?: () => void,
  ): AsyncIterable<readonly GenerateEvent[]>;
  /**
   * Returns the texts of a model's vocabulary, used to show the tokens in logprobs. Call this method while a generation on the
   * model runs. The result stays valid afterwards. Throws model_failed if the engine ends before the call.
   */
  tokenTexts(model: string): ShownTokens;
  /** Counts the prompt tokens of a request. Throws its validation error; `cancelled` after the signal is aborted. */
  countTokens(request: GenerateRequest, signal: AbortSignal): Promise<number>;
  /** Converts text to tokens, or tokens to text. Throws a ServerError; `cancelled` after the signal is aborted. */
  convertTokens(request: TokensRequest, signal: AbortSignal): Promise<ConvertedTokens>;
  /** Returns the metrics of the models that have been loaded. */
  engineMetrics(): Promise<readonly EngineMetric[]>;
  /**
   * Translates a request body on a text worker, with the translator of the body's API. The bytes are transferred, not copied.
   * Throws the validation error of the body; `cancelled` after the signal is aborted.
   */
  translate(message: BodyToTranslate, signal: AbortSignal): Promise<unknown>;
  /**
   * Computes embeddings. Throws a ServerError. Aborting the signal cancels the request before the
   * next step: throws `cancelled`.
   */
  embed(request: EmbedRequest, signal: AbortSignal): Promise<Embeddings>;
}
