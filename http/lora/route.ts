// LoRA routes: POST /v1/load_lora_adapter, GET /v1/lora_adapters and POST /v1/unload_lora_adapter.
import type { Inference } from "../../actors/api/inference.ts";
import type { LoraAdapters } from "../../actors/api/lora-adapters.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { Context, RouteHandler } from "../context.ts";
import type { Exchange } from "../exchange.ts";
import { readJson } from "../json.ts";
import { loadAdapterSchema, readListQuery, toLoadRequest, toUnloadRequest, unloadAdapterSchema } from "./request.ts";
import { wireAdapter, wireListing } from "./response.ts";

// The request's abort signal is not used, so that loading continues if the client disconnects.
export const loadAdapter: RouteHandler = async (exchange, context) => {
  const body = readJson(exchange.request, loadAdapterSchema, context.log);
  const request = toLoadRequest(body, modelOf(exchange, context.inference, body.model));
  const loaded = await adaptersOf(context, request.model).load(request);
  if (!exchange.request.signal.aborted) exchange.json(200, wireAdapter(loaded, context.config.allowLoraUpdates));
};

export const unloadAdapter: RouteHandler = async (exchange, context) => {
  const body = readJson(exchange.request, unloadAdapterSchema, context.log);
  const request = toUnloadRequest(body, modelOf(exchange, context.inference, body.model));
  const unloaded = await adaptersOf(context, request.model).unload(request);
  if (!exchange.request.signal.aborted) exchange.json(200, wireAdapter(unloaded, context.config.allowLoraUpdates));
};

export const listAdapters: RouteHandler = async (exchange, context) => {
  const query = readListQuery(exchange.request.query);
  const model = modelOf(exchange, context.inference, query.model);
  const adapters = adaptersOf(context, model);
  const listing = adapters.list(model);
  exchange.json(200, wireListing(listing, await adapters.failures(model), context.config.allowLoraUpdates));
};

/** Returns the id of the base model that a request names. Rejects a model name that includes an adapter. */
function modelOf(exchange: Exchange, inference: Inference, name: string | null | undefined): string {
  const { id, adapter } = inference.resolveModel(name ?? undefined);
  exchange.model = id;
  if (adapter === null) return id;
  const text = `model: expected a base model, got a model with an adapter; send ${JSON.stringify(id)}`;
  throw new ServerError("unsupported", text, { param: "model" });
}

function adaptersOf({ lora }: Context, model: string): LoraAdapters {
  if (lora !== null) return lora;
  throw new ServerError(
    "lora_runtime_unavailable",
    `model ${JSON.stringify(model)} takes no adapters; set enable_lora (not possible with legacy_lora or xlora)`,
    { param: "model" },
  );
}
