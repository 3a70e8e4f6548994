// Health routes: GET /health reports whether the process is healthy; GET / does the same for clients that are not
// browsers. GET /ready reports whether the default model accepts requests.
import type { ModelOutcome } from "../../actors/api/model-management.ts";
import type { RouteHandler } from "../context.ts";
import type { Exchange } from "../exchange.ts";

/** Retry-After in seconds: the time that a failed thread or process needs to restart. */
const RETRY_AFTER_SECONDS = 2;

export const health: RouteHandler = (exchange, { inference }) => {
  const faults = inference.faults();
  if (faults.length === 0) exchange.text(200, "OK");
  else unavailable(exchange, faults);
};

/** GET /: redirects browsers to the web UI, if it is served. All other clients get the health check. */
export const root: RouteHandler = (exchange, context) => {
  const isBrowser = (exchange.request.headers.get("accept") ?? "").includes("text/html");
  if (isBrowser && context.config.servesUi) exchange.send(302, { location: "ui/", vary: "accept" }, "");
  else return health(exchange, context);
};

export const ready: RouteHandler = (exchange, { inference, models }) => {
  const reasons = [...inference.faults(), ...hindrances(models.statusOf("default"))];
  if (reasons.length === 0) exchange.text(200, "OK");
  else unavailable(exchange, reasons);
};

/**
 * Returns the reasons why a request to a model would fail. A model that was unloaded without an error gives no reason, because
 * the next request loads it.
 */
function hindrances({ id, status, error }: ModelOutcome): readonly string[] {
  if (status === "reloading") return [`model "${id}" is being loaded`];
  return error === null ? [] : [`model "${id}" is not loaded: ${error.message}`];
}

function unavailable(exchange: Exchange, reasons: readonly string[]): void {
  const headers = { "content-type": "text/plain; charset=utf-8", "retry-after": String(RETRY_AFTER_SECONDS) };
  exchange.send(503, headers, reasons.join("\n"));
}
