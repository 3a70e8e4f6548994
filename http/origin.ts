// Owns what a neutral request says of where it comes from, taken from its exchange by every route that generates.
import type { GenerateRequest } from "../engines/chat.ts";
import { clientOf } from "./client.ts";
import type { Exchange } from "./exchange.ts";

export type Origin = Pick<GenerateRequest, "model" | "client" | "series" | "receivedAt">;

/** `model` is what the request's own word for it resolved to. */
export function originOf(exchange: Exchange, model: string, isStreamed: boolean): Origin {
  return {
    model,
    client: clientOf(exchange.request),
    series: isStreamed ? (exchange.route?.path ?? null) : null,
    receivedAt: exchange.receivedAt,
  };
}
