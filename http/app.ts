// Owns the way from a request to its handler: CORS preflight, unknown path, wrong method, draining, and the one place
// where a throw becomes an answer. Created by the composition root; an edge (or a test) calls `handle`.
import type { Inference } from "../actors/inference.ts";
import { ServerError } from "../runtime/errors.ts";
import type { Context, HttpConfig } from "./context.ts";
import type { EdgeHandler } from "./edge.ts";
import { Exchange } from "./exchange.ts";
import type { Log } from "./log.ts";
import { type Route, routes, routesOf } from "./routes.ts";

export interface AppOptions {
  readonly inference: Inference;
  readonly log: Log;
  readonly config?: Partial<HttpConfig>;
}

export interface App {
  readonly handle: EdgeHandler;
  /** From now on new inference is refused with `draining`; what runs goes on, and /health answers as before. */
  drain(): void;
}

const defaults: HttpConfig = {
  keepAliveMs: 10_000,
  readerStallMs: 30_000,
  accessLog: true,
  accessLogHealth: false,
  disableRequestIdHeader: false,
  disableMetrics: false,
};

const preflightHeaders = {
  "access-control-allow-methods": "GET, POST, PUT, DELETE",
  "access-control-allow-headers": "Content-Type, Authorization, x-api-key, alt-version, alt-beta, x-request-id",
};

export function createApp({ inference, log, config: given }: AppOptions): App {
  const config = { ...defaults, ...given };
  const context: Context = { inference, config, log };
  const loudOptions = { log, accessLog: config.accessLog, disableRequestIdHeader: config.disableRequestIdHeader };
  const quietOptions = { ...loudOptions, accessLog: config.accessLog && config.accessLogHealth };
  let isDraining = false;

  const handle: EdgeHandler = (request, reply, refusal) => {
    const methods = routesOf(request.path);
    const route = methods?.get(request.method);
    const isQuiet = route?.kind === "operations" || request.method === "OPTIONS";
    const exchange = new Exchange(request, reply, isQuiet ? quietOptions : loudOptions);
    if (refusal !== null) exchange.fail(refusal);
    else if (request.method === "OPTIONS") exchange.send(204, { ...preflightHeaders, ...allow(methods) }, "");
    else if (route === undefined) refuseRoute(exchange, methods);
    else if (isDraining && route.kind === "inference") {
      exchange.fail(new ServerError("draining", "the server is shutting down; send the request to another one"));
    } else {
      runHandler(route, exchange, context);
      return;
    }
    exchange.finish();
  };
  return {
    handle,
    drain() {
      isDraining = true;
    },
  };
}

/** Runs a handler, which may answer at once or later, and ends the exchange. */
function runHandler(route: Route, exchange: Exchange, context: Context): void {
  const failed = (thrown: unknown): void => {
    exchange.fail(thrown);
    exchange.finish();
  };
  try {
    const pending = route.handler(exchange, context);
    if (pending === undefined) exchange.finish();
    else pending.then(() => exchange.finish(), failed);
  } catch (thrown) {
    failed(thrown);
  }
}

function refuseRoute(exchange: Exchange, methods: ReadonlyMap<string, Route> | undefined): void {
  const { method, path } = exchange.request;
  if (methods === undefined) {
    const known = [...new Set(routes.map((route) => route.path))].join(", ");
    exchange.fail(new ServerError("not_found", `there is nothing at ${path.slice(0, 200)}; this server has ${known}`));
    return;
  }
  const allowed = allow(methods);
  exchange.fail(
    new ServerError("method_not_allowed", `${path} takes ${allowed.allow}, not ${method.slice(0, 20)}`),
    allowed,
  );
}

function allow(methods: ReadonlyMap<string, Route> | undefined): { readonly allow: string } {
  return { allow: methods === undefined ? "OPTIONS" : [...methods.keys(), "OPTIONS"].join(", ") };
}
