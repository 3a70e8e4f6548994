// BodyTranslators: parsers of the request bodies of the HTTP APIs. They run on text workers. http/ implements the interface, and
// the settings contain the URL of the module with the implementation.

import type { Transferable } from "../../runtime/endpoint/endpoint.ts";
import type { TaskOutput } from "../../runtime/task/task.ts";

export interface BodyTranslators {
  /** Converts a request body to plain data. Throws a ServerError with the name of the invalid field. */
  translate(protocol: string, body: Uint8Array, parameters: unknown): TaskOutput;
}

/** Exports of the module that implements the translators. */
export interface TranslatorModule {
  readonly translators: BodyTranslators;
}

/** A request body to translate on a text worker. The bytes are transferred to the worker, not copied. */
export interface BodyToTranslate {
  readonly client: string;
  readonly protocol: string;
  readonly body: Uint8Array;
  /** Additional parameters for the API's translator. */
  readonly parameters: unknown;
}

export interface TranslatedBody {
  readonly value: unknown;
  /** Buffers within `value` that can be transferred to another thread. */
  readonly movable: readonly Transferable[];
}
