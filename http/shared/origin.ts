// Owns what a neutral request says of where it comes from, taken from its exchange by every route that generates.
import type { ResolvedModel } from "../../actors/api/inference.ts";
import type { GenerateRequest } from "../../engines/generation.ts";
import type { Exchange } from "../exchange.ts";
import { clientOf } from "../server/client.ts";

export type Origin = Pick<GenerateRequest, "model" | "adapter" | "client" | "series" | "receivedAt">;

/** `model` is what the request's own words for it come to. */
export function originOf(exchange: Exchange, model: ResolvedModel, isStreamed: boolean): Origin {
  return {
    model: model.id,
    adapter: model.adapter,
    client: clientOf(exchange.request),
    series: isStreamed ? (exchange.route?.path ?? null) : null,
    receivedAt: exchange.receivedAt,
  };
}
