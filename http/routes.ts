// Owns the route table, one line an endpoint, and how a path and method find their line.

import { chatOperation } from "./chat/operation.ts";
import { chatCompletions } from "./chat/route.ts";
import { completionOperation } from "./completions/operation.ts";
import { completions } from "./completions/route.ts";
import type { RouteHandler } from "./context.ts";
import { docsAssetOperation, docsOperation } from "./docs/operation.ts";
import { docs, docsAsset } from "./docs/route.ts";
import { embeddingOperation } from "./embeddings/operation.ts";
import { embeddings } from "./embeddings/route.ts";
import type { ErrorFormat } from "./errors.ts";
import { healthOperation, rootOperation } from "./health/operation.ts";
import { health } from "./health/route.ts";
import { rpcErrors } from "./mcp/errors.ts";
import { mcpOperation } from "./mcp/operation.ts";
import { messagesErrors } from "./messages/errors.ts";
import { countTokensOperation, messagesOperation } from "./messages/operation.ts";
import { countTokens, messages } from "./messages/route.ts";
import { metricsOperation } from "./metrics/operation.ts";
import { metrics } from "./metrics/route.ts";
import { listModelsOperation, retrieveModelOperation } from "./models/operation.ts";
import { listModels, retrieveModel } from "./models/route.ts";
import { openApiOperation } from "./openapi/operation.ts";
import { openApi } from "./openapi/route.ts";
import type { Operation } from "./operation.ts";
import { createResponse } from "./responses/create-route.ts";
import {
  cancelResponseOperation,
  createResponseOperation,
  deleteResponseOperation,
  listInputItemsOperation,
  retrieveResponseOperation,
} from "./responses/operation.ts";
import { cancelResponse, deleteResponse, listInputItems, retrieveResponse } from "./responses/stored-route.ts";
import { doctorOperation, systemInfoOperation } from "./system/operation.ts";
import { systemDoctor, systemInfo } from "./system/route.ts";

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
  readonly operation: Operation;
}

export interface Route extends DescribedRoute {
  readonly handler: RouteHandler;
}

export const routes: readonly Route[] = [
  { method: "GET", path: "/health", kind: "operations", handler: health, operation: healthOperation },
  { method: "GET", path: "/", kind: "operations", handler: health, operation: rootOperation },
  { method: "GET", path: "/docs", kind: "operations", handler: docs, operation: docsOperation },
  { method: "GET", path: "/docs/{asset}", kind: "operations", handler: docsAsset, operation: docsAssetOperation },
  { method: "GET", path: "/api-doc/openapi.json", kind: "operations", handler: openApi, operation: openApiOperation },
  { method: "GET", path: "/metrics", kind: "operations", handler: metrics, operation: metricsOperation },
  {
    method: "GET",
    path: "/v1/system/info",
    kind: "resource",
    handler: systemInfo,
    operation: systemInfoOperation,
  },
  {
    method: "POST",
    path: "/v1/system/doctor",
    kind: "resource",
    handler: systemDoctor,
    operation: doctorOperation,
  },
  { method: "GET", path: "/v1/models", kind: "resource", handler: listModels, operation: listModelsOperation },
  {
    method: "GET",
    path: "/v1/models/{model}",
    kind: "resource",
    handler: retrieveModel,
    operation: retrieveModelOperation,
  },
  {
    method: "POST",
    path: "/v1/chat/completions",
    kind: "inference",
    handler: chatCompletions,
    operation: chatOperation,
  },
  {
    method: "POST",
    path: "/v1/completions",
    kind: "inference",
    handler: completions,
    operation: completionOperation,
  },
  { method: "POST", path: "/v1/embeddings", kind: "inference", handler: embeddings, operation: embeddingOperation },
  {
    method: "POST",
    path: "/v1/messages",
    kind: "inference",
    handler: messages,
    operation: messagesOperation,
    errors: messagesErrors,
  },
  {
    method: "POST",
    path: "/v1/messages/count_tokens",
    kind: "inference",
    handler: countTokens,
    operation: countTokensOperation,
    errors: messagesErrors,
  },
  {
    method: "POST",
    path: "/v1/responses",
    kind: "inference",
    handler: createResponse,
    operation: createResponseOperation,
  },
  {
    method: "GET",
    path: "/v1/responses/{response_id}",
    kind: "resource",
    isInferred: true,
    handler: retrieveResponse,
    operation: retrieveResponseOperation,
  },
  {
    method: "DELETE",
    path: "/v1/responses/{response_id}",
    kind: "resource",
    handler: deleteResponse,
    operation: deleteResponseOperation,
  },
  {
    method: "POST",
    path: "/v1/responses/{response_id}/cancel",
    kind: "resource",
    handler: cancelResponse,
    operation: cancelResponseOperation,
  },
  {
    method: "GET",
    path: "/v1/responses/{response_id}/input_items",
    kind: "resource",
    handler: listInputItems,
    operation: listInputItemsOperation,
  },
];

/** All that the API document has: these routes, and what is served on a port of its own. */
export const describedRoutes: readonly DescribedRoute[] = [
  ...routes,
  { method: "POST", path: "/mcp", kind: "operations", errors: rpcErrors, operation: mcpOperation },
];

export type PathParameters = Readonly<Record<string, string>>;

/** A path of the table, with the routes it has by method. */
export interface MatchedPath {
  readonly methods: ReadonlyMap<string, Route>;
  readonly parameters: PathParameters;
}

interface Pattern {
  readonly segments: readonly string[];
  readonly methods: Map<string, Route>;
}

const byPath = new Map<string, Map<string, Route>>();
for (const route of routes) {
  const methods = byPath.get(route.path) ?? new Map<string, Route>();
  byPath.set(route.path, methods.set(route.method, route));
  // HEAD is GET whose body the edge leaves out.
  if (route.method === "GET") methods.set("HEAD", route);
}
const patterns: readonly Pattern[] = [...byPath].flatMap(([path, methods]) =>
  path.includes("{") ? [{ segments: path.split("/"), methods }] : [],
);
const noParameters: PathParameters = {};

/** What the table has for a path; undefined where the path is not served. */
export function matchPath(path: string): MatchedPath | undefined {
  const methods = byPath.get(path);
  if (methods !== undefined && !path.includes("{")) return { methods, parameters: noParameters };
  const segments = path.split("/");
  for (const pattern of patterns) {
    const parameters = parametersOf(pattern.segments, segments);
    if (parameters !== null) return { methods: pattern.methods, parameters };
  }
  return undefined;
}

/** null where the path is not of this pattern. A parameter is never empty. */
function parametersOf(pattern: readonly string[], segments: readonly string[]): PathParameters | null {
  if (pattern.length !== segments.length) return null;
  const parameters: Record<string, string> = {};
  for (const [i, expected] of pattern.entries()) {
    const segment = segments[i] as string;
    if (!expected.startsWith("{")) {
      if (segment !== expected) return null;
    } else if (segment === "") return null;
    else parameters[expected.slice(1, -1)] = decoded(segment);
  }
  return parameters;
}

/** What is no proper encoding names nothing, and stays as it is. */
function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
