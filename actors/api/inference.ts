// Inference: the interface that http/ uses to list models, generate and embed. Implemented by
// actors/front/inference-service.ts; tests of http/ have a small implementation of their own.
import type { AdapterSelector, GenerateEvent, GenerateRequest } from "../../engines/generation.ts";
import type { ShownTokens } from "../../engines/text/tokenizer/token-texts.ts";
import type { BodyToTranslate } from "./body-translators.ts";
import type { EngineMetric } from "./engine-metric.ts";

export type ModelStatus = "loaded" | "unloaded" | "reloading";

/** One line of GET /v1/models. */
export interface ModelEntry {
  readonly id: string;
  readonly status: ModelStatus;
  /** Unix seconds. */
  readonly createdAt: number;
  /** null until the model is loaded for the first time. */
  readonly capabilities: ModelCapabilities | null;
  /** Adapters that requests can choose, in the order of loading. */
  readonly adapters: readonly AdapterEntry[];
}

export interface AdapterEntry {
  readonly alias: string;
  /** 64 hex digits. */
  readonly generation: string;
  /** Unix seconds. */
  readonly createdAt: number;
}

/** The meaning of a model name in a request. */
export interface ResolvedModel {
  readonly id: string;
  /** null: the name has no alias. */
  readonly adapter: AdapterSelector | null;
}

export interface ModelCapabilities {
  readonly generates: boolean;
  readonly embeds: boolean;
}

/** Texts, or prompts as tokens of the model's vocabulary. Packed, so that tens of megabytes move between threads uncopied. */
export type EmbedInputs =
  | {
      readonly kind: "texts";
      /** UTF-8, all texts concatenated. */
      readonly values: Uint8Array;
      /** End of each text in `values`. */
      readonly ends: Uint32Array;
    }
  | { readonly kind: "tokens"; readonly values: Int32Array; readonly ends: Uint32Array };

export interface EmbedRequest {
  /** Model id as loaded. */
  readonly model: string;
  /** Requests of different clients take turns. Never an API key itself. */
  readonly client: string;
  readonly inputs: EmbedInputs;
  /** Cut the end of an input that is too long, instead of refusing it. */
  readonly truncateInputs: boolean;
  /** Lower is served first; 0 by default. */
  readonly priority: number;
}

export interface Embeddings {
  /** A vector of Euclidean length 1 for each input, in order. */
  readonly vectors: readonly Float32Array[];
  readonly promptTokens: number;
}

export interface Inference {
  /** Reasons why no request can be answered now, in words. */
  faults(): readonly string[];
  /** All models in configured order. */
  models(): readonly ModelEntry[];
  /**
   * Resolves a model name. undefined and "default" are the default model; `<model>::<alias>`, and an alias that only one
   * model has, are that model with its adapter. Throws model_not_found.
   */
  resolveModel(requested: string | undefined): ResolvedModel;
  /**
   * Starts a generation. Each iteration yields all events that are ready, in order. Not iterating is back pressure: the
   * sequences pause when the bounded stream is full. Aborting the signal cancels before the next step, and ends the
   * iteration. Failures (queue full, model loading, engine crash) come as one final `error` event, never as a throw.
   * `onPrepared` is called when the request's content is released (the prompt is in tokens), and again when the generation
   * has ended. Sealed content moves away and cannot be sent again.
   */
  generate(
    request: GenerateRequest,
    signal: AbortSignal,
    onPrepared?: () => void,
  ): AsyncIterable<readonly GenerateEvent[]>;
  /**
   * The texts of a model's tokens, for the token ids in logprobs. Call it while a generation on the model runs; the result
   * stays valid. Throws model_failed if the model's engine has ended meanwhile.
   */
  tokenTexts(model: string): ShownTokens;
  /** Number of prompt tokens of a request. Throws what would refuse the request; `cancelled` once the signal is aborted. */
  countTokens(request: GenerateRequest, signal: AbortSignal): Promise<number>;
  /** Metrics of the models that have been loaded. */
  engineMetrics(): Promise<readonly EngineMetric[]>;
  /**
   * Translates a request body on a text worker, by the translator of its protocol. The bytes move there. Throws what refuses
   * the body; `cancelled` once the signal is aborted.
   */
  translate(message: BodyToTranslate, signal: AbortSignal): Promise<unknown>;
  /** Throws a ServerError; `cancelled` once the signal is aborted, before the next step. */
  embed(request: EmbedRequest, signal: AbortSignal): Promise<Embeddings>;
}
