// Messages between a page and the worker that runs a model in it.

/** A model to load into the wasm engine. */
export interface ModelToLoad {
  readonly name: string;
  /** The GGUF file. */
  readonly file: Blob;
  /** Number of compute threads, this worker included. */
  readonly threads: number;
  /** Maximum length of a conversation in tokens. A model that was trained for less gets less. */
  readonly context: number;
}

/** A model to load onto the GPU. */
export interface GpuModelToLoad {
  readonly name: string;
  /** Files of the model's folder (MLC format), by name. */
  readonly files: ReadonlyMap<string, Blob>;
  /** As in ModelToLoad. */
  readonly context: number;
}

/** `Model`: the kind of model that the worker runs. */
export type PageMessage<Model = ModelToLoad | GpuModelToLoad> =
  | { readonly kind: "load"; readonly model: Model }
  /** Begins an answer. `body`: as of POST /v1/responses. `id`: chosen by the page. */
  | { readonly kind: "respond"; readonly id: number; readonly body: object }
  | { readonly kind: "stop"; readonly id: number };

/** Facts about a loaded model. */
export interface LoadedFacts {
  readonly description: string;
  readonly engine: string;
  /** Number of compute threads; null: the GPU computes. */
  readonly threads: number | null;
  readonly weightBytes: number;
  /** null: not known. */
  readonly kvCacheBytes: number | null;
  /** Maximum length of a conversation in tokens. */
  readonly contextTokens: number;
}

export interface Problem {
  readonly code: string;
  readonly message: string;
}

export type WorkerMessage =
  /** `fraction` of the load, 0..1. */
  | { readonly kind: "progress"; readonly fraction: number }
  | { readonly kind: "loaded"; readonly facts: LoadedFacts }
  /** The model cannot be loaded, or its engine has failed: the worker is of no more use. */
  | { readonly kind: "failed"; readonly problem: Problem }
  /** Part of the stream of a response, as POST /v1/responses sends it: whole events. */
  | { readonly kind: "events"; readonly id: number; readonly text: string }
  /** The request was refused. No event came before. */
  | { readonly kind: "refused"; readonly id: number; readonly problem: Problem };
