// Health routes: GET /health reports whether the process is healthy; GET / does the same, but redirects browsers to the web UI.
// GET /ready reports whether the server should get new requests: the default model accepts them, its queue is not full, and the
// server is not stopping.
import type { ModelOutcome } from "../../actors/api/model-management.ts";
import type { Replicas } from "../../actors/api/state/replicas.ts";
import type { Context, RouteHandler } from "../context.ts";
import type { Exchange } from "../exchange.ts";

/** Retry-After in seconds: time that a failed thread or process needs to restart. */
const RETRY_AFTER_SECONDS = 2;

export const health: RouteHandler = (exchange, { inference }) => {
  const faults = inference.faults();
  if (faults.length === 0) exchange.text(200, "OK");
  else unavailable(exchange, faults);
};

/** GET /: redirects browsers to the web UI, if it is served. Other clients get the health check. */
export const root: RouteHandler = (exchange, context) => {
  const isBrowser = (exchange.request.headers.get("accept") ?? "").includes("text/html");
  if (isBrowser && context.config.servesUi) exchange.send(302, { location: "ui/", vary: "accept" }, "");
  else return health(exchange, context);
};

export const ready: RouteHandler = async (exchange, context) => {
  const { inference, models, replicas, isRetiring, isStarting } = context;
  const reasons = [
    ...(isRetiring() ? ["the server is shutting down"] : []),
    ...inference.faults(),
    ...hindrances(models.statusOf("default")),
    ...(await overload(context)),
  ];
  // Adapters are loaded after the models, so the server may still be starting although the models are ready.
  if (reasons.length === 0 && isStarting()) reasons.push("the server is starting");
  if (reasons.length > 0) unavailable(exchange, reasons);
  else exchange.text(200, ["OK", ...degradations(replicas)].join("\n"));
};

/**
 * Returns the problems that do not make the server unready. Loss of the shared state is such a problem, because all replicas
 * lose it at the same time, and requests that store nothing still work.
 */
function degradations(replicas: Replicas | null): readonly string[] {
  const { isConnected, reason } = replicas?.health() ?? { isConnected: true, reason: "" };
  return isConnected
    ? []
    : [`degraded: the shared state cannot be reached (${reason}); stored responses, files, sessions and skills fail`];
}

/** Returns a reason if the default model's queue has reached the length in the settings. */
async function overload({ models, config }: Context): Promise<readonly string[]> {
  if (!Number.isFinite(config.readyMaxQueue)) return [];
  const waiting = await models.waiting("default");
  return waiting < config.readyMaxQueue
    ? []
    : [`${waiting} sequences wait for a slot; ready_max_queue is ${config.readyMaxQueue}`];
}

/**
 * Returns the reasons why a request to a model would fail. A model unloaded without an error is no reason, because the next
 * request loads it.
 */
function hindrances({ id, status, error }: ModelOutcome): readonly string[] {
  if (status === "reloading") return [`model "${id}" is being loaded`];
  return error === null ? [] : [`model "${id}" is not loaded: ${error.message}`];
}

function unavailable(exchange: Exchange, reasons: readonly string[]): void {
  const headers = { "content-type": "text/plain; charset=utf-8", "retry-after": String(RETRY_AFTER_SECONDS) };
  exchange.send(503, headers, reasons.join("\n"));
}
