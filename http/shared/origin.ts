// Origin of a generation request: its model, adapter, client and time of arrival.
import type { ResolvedModel } from "../../actors/api/inference.ts";
import type { GenerateRequest } from "../../engines/generation.ts";
import type { Exchange } from "../exchange.ts";
import { clientOf } from "../server/client.ts";

export type Origin = Pick<GenerateRequest, "model" | "adapter" | "client" | "series" | "receivedAt">;

/** Returns the origin of a generation request. `model`: the resolved model and adapter. */
export function originOf(exchange: Exchange, model: ResolvedModel, isStreamed: boolean): Origin {
  return {
    model: model.id,
    adapter: model.adapter,
    client: clientOf(exchange.request),
    series: isStreamed ? (exchange.route?.path ?? null) : null,
    receivedAt: exchange.receivedAt,
  };
}
