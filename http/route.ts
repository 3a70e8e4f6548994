// Route: an endpoint without its handler. This module has only types, so that any module that handles a request may import it.
import type { ErrorFormat } from "./errors.ts";
import type { Operation } from "./operation.ts";

/** Path parameters by name, for example `response_id` of `/v1/responses/{response_id}`. */
export type PathParameters = Readonly<Record<string, string>>;

/** Description of a route, without its handler. The API document is generated from it. */
export interface DescribedRoute {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /** Path; a segment in braces is a parameter: `/v1/responses/{response_id}`. */
  readonly path: string;
  /** Kind of route. Inference routes are refused while the server drains. Operations routes are not in the access log by default. */
  readonly kind: "operations" | "inference" | "resource";
  /** Set if a model generated the resource. The route's requests are then logged and traced like inference requests. */
  readonly isInferred?: true;
  /** Whether the path accepts WebSocket connections. Each message is then the body of a POST request, with a streamed reply. */
  readonly takesMessages?: true;
  /** Whether bodies are written to a file while they arrive; see HttpRequest.bodyFile. */
  readonly spoolsBody?: true;
  /** Whether JSON bodies need no content type. The protocol's examples use curl, which sends a different type by default. */
  readonly takesUntyped?: true;
  /** Set if unknown fields of the body are ignored by default, as on all inference routes. */
  readonly ignoresUnknown?: true;
  /** Set if the route needs no API key on a server that has keys. */
  readonly isOpen?: true;
  /** Error format; default: commonErrors. */
  readonly errors?: ErrorFormat;
  /** Error format of requests with the version header of the messages protocol; default: `errors`. */
  readonly versionErrors?: ErrorFormat;
  /** Setting that enables the route. If the setting is off, the route responds with 404. */
  readonly setting?: keyof RouteSettings;
  /** Field that names the model, for the label of the metrics. Inference routes do not set it; they use `model` in the body. */
  readonly modelName?: ModelName;
  readonly operation: Operation;
}

/** Settings that decide which routes are served, and how the API document describes them. */
export interface RouteSettings {
  /** Whether requests need an API key, except on open routes. */
  readonly needsApiKey: boolean;
  /** Whether requests may load and unload LoRA adapters and see the adapters' sources. */
  readonly allowLoraUpdates: boolean;
  /** Whether the process also has an MCP server, on a separate port. */
  readonly servesMcp: boolean;
  readonly servesDocs: boolean;
  readonly servesMetrics: boolean;
  /** Whether to serve the lists of settings and of the requests, responses and sessions of all clients. */
  readonly servesLists: boolean;
  readonly servesUi: boolean;
  /** Whether clients may download the files of the models. */
  readonly sharesModelFiles: boolean;
  /** Whether clients may have the server download models, and remove them. */
  readonly downloadsModels: boolean;
}

/** Name of a body field, or "query" for the query parameter `model`. */
type ModelName = "model" | "model_id" | "query";
