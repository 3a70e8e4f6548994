// Messages between a page and the worker that runs a model in it.

/** A model to load into the wasm engine. */
export interface ModelToLoad {
  readonly name: string;
  /** The GGUF file. */
  readonly file: Blob;
  /** Number of compute threads, including this worker. */
  readonly threads: number;
  /** Maximum length of a conversation in tokens. It is reduced to the context for which the model was trained. */
  readonly context: number;
}

/** A model to load onto the GPU. */
export interface GpuModelToLoad {
  readonly name: string;
  /** Files of the model's folder (MLC format), by name. */
  readonly files: ReadonlyMap<string, Blob>;
  /** Maximum length of a conversation in tokens, reduced to the context of the model. */
  readonly context: number;
}

/** Messages from the page to the worker. `Model`: kind of model that the worker runs. */
export type PageMessage<Model = ModelToLoad | GpuModelToLoad> =
  | { readonly kind: "load"; readonly model: Model }
  /** Starts an answer. `body`: as for POST /v1/responses. `id`: chosen by the page. */
  | { readonly kind: "respond"; readonly id: number; readonly body: object }
  | { readonly kind: "stop"; readonly id: number };

/** Properties of a loaded model. */
export interface LoadedFacts {
  readonly description: string;
  readonly engine: string;
  /** Number of compute threads; null: the GPU computes. */
  readonly threads: number | null;
  readonly weightBytes: number;
  /** Size of the KV cache in bytes; null: unknown. */
  readonly kvCacheBytes: number | null;
  /** Maximum length of a conversation in tokens. */
  readonly contextTokens: number;
}

export interface Problem {
  readonly code: string;
  readonly message: string;
}

export type WorkerMessage =
  /** Progress of loading. `fraction`: from 0 to 1. */
  | { readonly kind: "progress"; readonly fraction: number }
  | { readonly kind: "loaded"; readonly facts: LoadedFacts }
  /** Error: the model cannot be loaded, or its engine has failed. The worker cannot be used any longer. */
  | { readonly kind: "failed"; readonly problem: Problem }
  /** Part of a response stream, in the format of POST /v1/responses. It consists of complete events. */
  | { readonly kind: "events"; readonly id: number; readonly text: string }
  /** Error: the request was rejected, before any event was sent. */
  | { readonly kind: "refused"; readonly id: number; readonly problem: Problem };
