// Owns the face the front thread shows to the protocol routes: which models there are, "generate" and "embed". It hides
// where the actors run. Implemented by actors/front/inference-service.ts; tests of http/ implement it with a few lines.
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
  /** What it can do; null while that is not known, because it has not been loaded. */
  readonly capabilities: ModelCapabilities | null;
  /** Those that requests can choose, by alias; in the order they were loaded. */
  readonly adapters: readonly AdapterEntry[];
}

export interface AdapterEntry {
  readonly alias: string;
  /** 64 hex digits. */
  readonly generation: string;
  /** Unix seconds. */
  readonly createdAt: number;
}

/** What the name of a model in a request stands for. */
export interface ResolvedModel {
  readonly id: string;
  /** The alias that was named instead of a model; null where a model was. */
  readonly adapter: AdapterSelector | null;
}

export interface ModelCapabilities {
  readonly generates: boolean;
  readonly embeds: boolean;
}

/** Texts, or prompts in tokens of the model's vocabulary. Packed: tens of megabytes move between threads as they are. */
export type EmbedInputs =
  | {
      readonly kind: "texts";
      /** UTF-8, one text behind the other. */
      readonly values: Uint8Array;
      /** Where each ends. */
      readonly ends: Uint32Array;
    }
  | { readonly kind: "tokens"; readonly values: Int32Array; readonly ends: Uint32Array };

export interface EmbedRequest {
  /** Model id as loaded. */
  readonly model: string;
  /** Who asks: requests of different clients take turns. Never a key itself. */
  readonly client: string;
  readonly inputs: EmbedInputs;
  /** Keep the start of an input that is too long, instead of refusing it. */
  readonly truncateInputs: boolean;
  /** The lower, the sooner it is served; 0 where the client says nothing. */
  readonly priority: number;
}

export interface Embeddings {
  /** One an input, in order, each of length 1. */
  readonly vectors: readonly Float32Array[];
  readonly promptTokens: number;
}

export interface Inference {
  /** What every request needs and is down now, each in words; none when all is well. */
  faults(): readonly string[];
  /** All models in configured order. */
  models(): readonly ModelEntry[];
  /**
   * What `requested` stands for: undefined and "default" are the default model; `<model>::<alias>` as in the list of
   * models, and an alias that only one model has, are that model with its adapter. Throws model_not_found.
   */
  resolveModel(requested: string | undefined): ResolvedModel;
  /**
   * Starts a generation. Each iteration yields all events that are ready, in order; not iterating is back pressure:
   * the sequence pauses when its bounded buffer is full. Aborting the signal cancels before the next step; the stream
   * then ends. Failures (queue full, model loading, engine crash) arrive as one final `error` event, never as a throw.
   * `onPrepared` is called once what the request was made of is not held any more: its prompt is in tokens, or it has ended.
   * A sealed content moves away and cannot be sent again.
   */
  generate(
    request: GenerateRequest,
    signal: AbortSignal,
    onPrepared?: () => void,
  ): AsyncIterable<readonly GenerateEvent[]>;
  /**
   * The texts of a model's tokens, by its id: to be asked for while a generation on it runs, whose logprobs name tokens by their
   * ids. What is returned stays valid. Throws model_failed where the model's engine has ended meanwhile.
   */
  tokenTexts(model: string): ShownTokens;
  /** Tokens of the prompt a request comes to. Throws what would refuse the request; `cancelled` once the signal is aborted. */
  countTokens(request: GenerateRequest, signal: AbortSignal): Promise<number>;
  /** The engine metrics of the models that are loaded now. */
  engineMetrics(): Promise<readonly EngineMetric[]>;
  /**
   * What a request body says, read on a text worker, where the bytes move to; as the translators of its protocol have it.
   * Throws what refuses it; `cancelled` once the signal is aborted.
   */
  translate(message: BodyToTranslate, signal: AbortSignal): Promise<unknown>;
  /** Throws what hinders it as a ServerError; `cancelled` once the signal is aborted, before the next step. */
  embed(request: EmbedRequest, signal: AbortSignal): Promise<Embeddings>;
}
