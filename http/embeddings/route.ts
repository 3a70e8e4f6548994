// Owns POST /v1/embeddings: body to request, vectors to body.
import { ServerError } from "../../runtime/errors.ts";
import { chosenModel } from "../chosen-model.ts";
import { clientOf } from "../client.ts";
import type { RouteHandler } from "../context.ts";
import { readJson } from "../json.ts";
import { embeddingRequestSchema, toEmbedRequest } from "./request.ts";
import { embeddingList } from "./response.ts";

export const embeddings: RouteHandler = async (exchange, { inference, log }) => {
  const { request } = exchange;
  const body = readJson(request, embeddingRequestSchema, log);
  const { id: model, adapter } = chosenModel(exchange, inference, { model: body.model });
  if (adapter !== null) {
    const text = `model: expected a model without an adapter, as embeddings are made without; send ${JSON.stringify(model)}`;
    throw new ServerError("unsupported", text, { param: "model" });
  }
  const made = await inference.embed(toEmbedRequest(body, model, clientOf(request)), request.signal);
  const text = await embeddingList(model, made, body.encoding_format ?? "float");
  if (!request.signal.aborted) exchange.send(200, { "content-type": "application/json" }, text);
};
