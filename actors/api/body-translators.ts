// BodyTranslators: read the request bodies of the wire protocols on a text worker. Implemented by http/; the settings name
// its module.

import type { Transferable } from "../../runtime/endpoint/endpoint.ts";
import type { TaskOutput } from "../../runtime/task/task.ts";

export interface BodyTranslators {
  /** A request body as plain data. Throws a ServerError with the field at fault. */
  translate(protocol: string, body: Uint8Array, parameters: unknown): TaskOutput;
}

/** Exports of the module. */
export interface TranslatorModule {
  readonly translators: BodyTranslators;
}

/** A request body that is translated on a text worker. The bytes move there. */
export interface BodyToTranslate {
  readonly client: string;
  readonly protocol: string;
  readonly body: Uint8Array;
  /** Further input of the protocol's translator. */
  readonly parameters: unknown;
}

export interface TranslatedBody {
  readonly value: unknown;
  /** Memory in the value that may move to another thread. */
  readonly movable: readonly Transferable[];
}
