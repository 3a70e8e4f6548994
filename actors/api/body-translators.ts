// What the wire protocols bring to a text worker: reading their request bodies. Implemented by http/, whose module the
// composition root names.

import type { Transferable } from "../../runtime/endpoint/endpoint.ts";
import type { TaskOutput } from "../../runtime/task/task.ts";

export interface BodyTranslators {
  /** What a body of the protocol says, as plain data. Throws ServerError naming the field at fault. */
  translate(protocol: string, body: Uint8Array, parameters: unknown): TaskOutput;
}

/** What the module exports. */
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
