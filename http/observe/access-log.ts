// Access log: one line per request, written when the request has ended. Bodies, headers and queries are never logged, because
// they may contain secrets.
import type { Exchange, ExchangeObserver } from "../exchange.ts";
import type { Log } from "./log.ts";

export class AccessLog implements ExchangeObserver {
  readonly #log: Log;

  constructor(log: Log) {
    this.#log = log;
  }

  ended(exchange: Exchange): void {
    const { request, route, model } = exchange;
    const code = exchange.errorCode ?? exchange.generation?.error?.code;
    const fields = {
      method: request.method,
      path: request.path,
      // The path pattern of the route is added if the path contains ids, because the pattern is easier to search for.
      ...(route !== null && route.path !== request.path && { route: route.path }),
      ...(request.socket !== undefined && { transport: "websocket" }),
      status: exchange.status,
      ...(code !== undefined && { code }),
      durationMs: Math.round(exchange.elapsedMs * 1000) / 1000,
      requestBytes: request.bodyBytes,
      bytes: exchange.sentBytes,
      address: request.address,
      requestId: exchange.id,
      ...(model !== "" && { model }),
      ...generationFields(exchange),
    };
    this.#log.info(fields, "request");
  }
}

function generationFields({ generation, receivedAt }: Exchange): object {
  if (generation === null) return {};
  const { usage, promptTokens } = generation;
  if (usage === null) return promptTokens === null ? {} : { promptTokens };
  const firstTokenMs = Math.max(Math.round(usage.timeline.firstTokenAt - receivedAt), 0);
  return { promptTokens, completionTokens: usage.completionTokens, firstTokenMs };
}
