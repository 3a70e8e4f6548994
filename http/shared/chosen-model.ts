// Model choice: resolves the body fields `model` and `adapter`. Used by every route that generates.
import type { z } from "zod";
import type { Inference, ResolvedModel } from "../../actors/api/inference.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { Exchange } from "../exchange.ts";
import { type adapterField, adapterOf } from "./fields/adapter-field.ts";

interface ChoosingBody {
  readonly model?: string | null | undefined;
  readonly adapter?: z.output<typeof adapterField>;
}

/** Resolves the model and, if requested, the adapter, and records the model in the exchange. Throws model_not_found. */
export function chosenModel(exchange: Exchange, inference: Inference, body: ChoosingBody): ResolvedModel {
  const { id, adapter: named, defaults } = inference.resolveModel(body.model ?? undefined);
  exchange.model = id;
  const asked = adapterOf(body.adapter);
  if (named === null || asked === null) return { id, adapter: named ?? asked, defaults };
  const text = `adapter: expected none beside model ${JSON.stringify(body.model)}, which includes an adapter; omit it, or send model ${JSON.stringify(id)}`;
  throw new ServerError("invalid_value", text, { param: "adapter" });
}
