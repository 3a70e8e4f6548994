// Owns the route table, one line an endpoint, and how a path and method find their line.

import { chatCompletions } from "./chat/route.ts";
import { completions } from "./completions/route.ts";
import type { RouteHandler } from "./context.ts";
import { embeddings } from "./embeddings/route.ts";
import { health } from "./health/route.ts";
import { metrics } from "./metrics/route.ts";
import { listModels } from "./models/route.ts";

export interface Route {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  readonly path: string;
  /** operations routes go on while the server drains, and are left out of the access log by default. */
  readonly kind: "operations" | "inference" | "resource";
  readonly handler: RouteHandler;
}

export const routes: readonly Route[] = [
  { method: "GET", path: "/health", kind: "operations", handler: health },
  { method: "GET", path: "/", kind: "operations", handler: health },
  { method: "GET", path: "/metrics", kind: "operations", handler: metrics },
  { method: "GET", path: "/v1/models", kind: "resource", handler: listModels },
  { method: "POST", path: "/v1/chat/completions", kind: "inference", handler: chatCompletions },
  { method: "POST", path: "/v1/completions", kind: "inference", handler: completions },
  { method: "POST", path: "/v1/embeddings", kind: "inference", handler: embeddings },
];

const byPath = new Map<string, Map<string, Route>>();
for (const route of routes) {
  const methods = byPath.get(route.path) ?? new Map<string, Route>();
  byPath.set(route.path, methods.set(route.method, route));
  // HEAD is GET whose body the edge leaves out.
  if (route.method === "GET") methods.set("HEAD", route);
}

/** The routes of a path by method; undefined where the path is not served. */
export function routesOf(path: string): ReadonlyMap<string, Route> | undefined {
  return byPath.get(path);
}
