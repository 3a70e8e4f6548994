// Route: an endpoint without its handler. Types only, so that any module that handles a request may import it.
import type { ErrorFormat } from "./errors.ts";
import type { Operation } from "./operation.ts";

/** Path parameters by name: `response_id` of `/v1/responses/{response_id}`. */
export type PathParameters = Readonly<Record<string, string>>;

/** A route as the API document describes it. */
export interface DescribedRoute {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /** A segment in braces is a parameter: `/v1/responses/{response_id}`. */
  readonly path: string;
  /** Operations routes are served while the server drains, and not in the access log by default. */
  readonly kind: "operations" | "inference" | "resource";
  /** A resource that a model created: in the request log and the traces, like inference. */
  readonly isInferred?: true;
  /** Error format; default: the common envelope. */
  readonly errors?: ErrorFormat;
  /** Served only if this setting is on; otherwise 404. */
  readonly setting?: "allowLoraUpdates";
  /** Where a request names its model, for the metrics; inference requests: `model` in the body. */
  readonly modelName?: ModelName;
  readonly operation: Operation;
}

/** A field of the body, or the query parameter `model`. */
type ModelName = "model" | "model_id" | "query";
