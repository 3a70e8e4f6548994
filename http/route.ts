// Route: what is known of an endpoint without its handler. Types only: whatever is given a request may import it.
import type { ErrorFormat } from "./errors.ts";
import type { Operation } from "./operation.ts";

/** Parameters of a path by name: `response_id` of `/v1/responses/{response_id}`. */
export type PathParameters = Readonly<Record<string, string>>;

/** What the API document says of a route. */
export interface DescribedRoute {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /** A segment in braces is a parameter: `/v1/responses/{response_id}`. */
  readonly path: string;
  /** operations routes go on while the server drains, and are left out of the access log by default. */
  readonly kind: "operations" | "inference" | "resource";
  /** Of a resource that a model made: the request log and the traces have it, like inference. */
  readonly isInferred?: true;
  /** How its errors look, where not in the common envelope. */
  readonly errors?: ErrorFormat;
  /** Served only where this setting is on; else there is nothing at its path. */
  readonly setting?: "allowLoraUpdates";
  /** Where a request names a model, for the metrics: requests for inference do in their body's `model`. */
  readonly modelName?: ModelName;
  readonly operation: Operation;
}

/** A field of the body, or the parameter `model` behind the `?`. */
type ModelName = "model" | "model_id" | "query";
