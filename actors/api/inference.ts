// Inference: the interface that http/ uses to list models, generate and embed. Implemented by actors/front/inference-service.ts;
// the tests of http/ use a small implementation.
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
  /** Time in Unix seconds at which the model's entry was created. */
  readonly createdAt: number;
  /** Path of the model's GGUF file on this machine; for a split model, the path of its first file. */
  readonly path: string;
  /** Whether the model was downloaded at the request of a client; absent = the model is from the settings. */
  readonly isDownloaded?: boolean;
  readonly defaults: GenerationDefaults;
  /** Fraction of the load that is done, 0..1; null = the model is not being loaded. */
  readonly loadProgress: number | null;
  /** Last change of the weights' quantization; null or absent = not changed since the server started. */
  readonly requantization?: Requantization | null;
  /** Capabilities of the model; null until the model is loaded for the first time. */
  readonly capabilities: ModelCapabilities | null;
  /** Adapters that requests can select, in the order in which they were loaded. */
  readonly adapters: readonly AdapterEntry[];
  /** Whether the model generates images; absent = it generates tokens. */
  readonly isDiffusion?: boolean;
  /** Task and engine of a speech model; null or absent = the model generates tokens. */
  readonly speech?: { readonly task: SpeechTask; readonly engine: SpeechEngineName } | null;
  /** Reason why the last load failed; null or absent = no failure. */
  readonly loadError?: string | null;
}

/** A change of the quantization of a model's weights: the last one, or the one in progress. */
export interface Requantization {
  /** Name of the quantization level, for example Q4_K. */
  readonly level: string;
  readonly status: "converting" | "loading" | "done" | "failed";
  /** Fraction of the conversion that is done, 0..1. */
  readonly progress: number;
  /** Reason why the conversion failed; null = no failure. */
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
  /** Adapter that the name selects; null = the name contains no adapter alias. */
  readonly adapter: AdapterSelector | null;
  readonly defaults: GenerationDefaults;
  /** Whether the model accepts audio input; absent = no. */
  readonly takesAudio?: boolean;
}

export interface ModelCapabilities {
  readonly generates: boolean;
  /** Whether the model accepts images; absent = no. */
  readonly takesImages?: boolean;
  /** Whether the model accepts audio input; absent = no. */
  readonly takesAudio?: boolean;
  readonly embeds: boolean;
  /** Whether the model computes one embedding vector per token (ColBERT); absent = one vector per text. */
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
  /** Facts from the model's file; null if the generation thread was not running when the model was loaded. */
  readonly file: ModelFileFacts | null;
  /** Facts of a diffusion model; null or absent = the model generates tokens. */
  readonly diffusion?: DiffusionCard | null;
  /** Facts of a speech model; null or absent = the model generates tokens. */
  readonly speech?: SpeechCard | null;
}

/** Facts from a model's file. */
export interface ModelFileFacts {
  /** Name of the architecture, for example qwen3. */
  readonly architecture: string;
  /** Data type of most weights, for example Q4_K_M; null = unknown. */
  readonly weightType: string | null;
  /** SHA-256 of the file's header (metadata and list of tensors), 64 hex digits. */
  readonly headDigest: string;
  /** Whether the model has a usable chat template. */
  readonly chats: boolean;
  /** Whether the chat template delimits reasoning. */
  readonly reasons: boolean;
}

/**
 * Inputs to embed: texts, or prompts as token ids of the model. They are packed into a few buffers, so that tens of megabytes
 * move between threads without a copy.
 */
export type EmbedInputs =
  | {
      readonly kind: "texts";
      /** All texts in UTF-8, concatenated. */
      readonly values: Uint8Array;
      /** Byte offset of the end of each text in `values`. */
      readonly ends: Uint32Array;
    }
  | { readonly kind: "tokens"; readonly values: Int32Array; readonly ends: Uint32Array };

export interface EmbedRequest {
  /** Id of a loaded model. */
  readonly model: string;
  /** Identifies the client, for fair scheduling between clients. Never the API key itself. */
  readonly client: string;
  readonly inputs: EmbedInputs;
  /** Query against which each input is scored (reranking). Absent = compute vectors instead of scores. */
  readonly query?: string;
  /** Role of the texts, such as `query` or `document`. Absent = the model's default. */
  readonly inputType?: string;
  /** Whether the caller accepts one vector per token. If not, models that compute such vectors are rejected. */
  readonly takesTokenVectors?: boolean;
  /** Number of leading elements of each vector to keep; the shortened vector is then scaled to length 1. Absent = keep all. */
  readonly dimensions?: number;
  /** Whether to truncate an input that is too long. If false, such an input is rejected. */
  readonly truncateInputs: boolean;
  /** Priority: requests with lower values are served first. The default is 0. */
  readonly priority: number;
}

export interface Embeddings {
  /**
   * One array per input, in order: a vector of Euclidean length 1; or one such vector per token, concatenated; or the model's
   * scores for the pair of query and input.
   */
  readonly vectors: readonly Float32Array[];
  /** Length of one token's vector; absent = one vector per input. */
  readonly tokenVectorLength?: number;
  /**
   * Whether the scores are MaxSim scores: for each vector of the query, the largest dot product with a vector of the input,
   * summed. Absent = the scores are outputs of the model.
   */
  readonly isMaxSim?: boolean;
  readonly promptTokens: number;
}

/** Text or chat to convert to tokens, or tokens to convert to text. */
export type TokenSource =
  | {
      readonly kind: "text";
      readonly text: string;
      /** Whether to add the BOS token, if the model requires it. */
      readonly addsSpecial: boolean;
      /** Whether names of control tokens in the text are converted to these tokens. If false, they are treated as plain text. */
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
  /** Whether to return the text of each token as well. */
  readonly wantsPieces: boolean;
}

export interface ConvertedTokens {
  readonly tokens: Int32Array;
  /** Text of the tokens; null if the source is not tokens. */
  readonly text: string | null;
  /** Text of each token, or its bytes if they are not valid UTF-8; null = not requested. */
  readonly pieces: readonly (string | readonly number[])[] | null;
  /** Maximum number of tokens of prompt and output together. */
  readonly maxModelLength: number;
}

export interface Inference {
  /** Returns the reasons why the server cannot serve requests now; empty = it can. */
  faults(): readonly string[];
  /** Returns all models in the order of the settings. */
  models(): readonly ModelEntry[];
  /**
   * Resolves a model name. undefined and "default" mean the default model. `<model>::<alias>` means that model with that adapter.
   * An alias alone is enough if only one model has it. Throws model_not_found.
   */
  resolveModel(requested: string | undefined): ResolvedModel;
  /**
   * Starts a generation. Each iteration yields all events that are ready, in order. A consumer that stops iterating applies back
   * pressure: the sequences pause when the bounded stream is full. Aborting the signal cancels the sequences before the next step
   * and ends the iteration. Failures (queue full, model loading, engine crash) arrive as one final `error` event; they are never
   * thrown. `onPrepared` is called when the prompt has been tokenised and the request's content released, and again when the
   * generation has ended. Sealed content is transferred to another thread, so a request with sealed content cannot be sent twice.
   */
  generate(
    request: GenerateRequest,
    signal: AbortSignal,
    onPrepared?: () => void,
  ): AsyncIterable<readonly GenerateEvent[]>;
  /**
   * Returns the texts of a model's vocabulary, used to show the tokens in logprobs. Must be called while a generation of the
   * model is running; the result stays valid afterwards. Throws model_failed if the engine ended before the call.
   */
  tokenTexts(model: string): ShownTokens;
  /** Counts the prompt tokens of a request. Throws the validation errors of the request; `cancelled` after the signal is aborted. */
  countTokens(request: GenerateRequest, signal: AbortSignal): Promise<number>;
  /** Converts text to tokens, or tokens to text. Throws a ServerError; `cancelled` after the signal is aborted. */
  convertTokens(request: TokensRequest, signal: AbortSignal): Promise<ConvertedTokens>;
  /** Returns the metrics of all models that have been loaded. */
  engineMetrics(): Promise<readonly EngineMetric[]>;
  /**
   * Translates a request body on a text worker, with the translator of the body's API. The bytes are transferred, not copied.
   * Throws the validation errors of the body; `cancelled` after the signal is aborted.
   */
  translate(message: BodyToTranslate, signal: AbortSignal): Promise<unknown>;
  /**
   * Computes embeddings. Throws a ServerError. Aborting the signal cancels the request before the next step; `cancelled` is then
   * thrown.
   */
  embed(request: EmbedRequest, signal: AbortSignal): Promise<Embeddings>;
}
