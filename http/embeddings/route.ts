// Owns POST /v1/embeddings: body to request, vectors to body.
import { clientOf } from "../client.ts";
import type { RouteHandler } from "../context.ts";
import { readJson } from "../json.ts";
import { embeddingRequestSchema, toEmbedRequest } from "./request.ts";
import { embeddingList } from "./response.ts";

export const embeddings: RouteHandler = async (exchange, { inference, log }) => {
  const { request } = exchange;
  const body = readJson(request, embeddingRequestSchema, log);
  const model = inference.resolveModel(body.model ?? undefined);
  exchange.model = model;
  const made = await inference.embed(toEmbedRequest(body, model, clientOf(request)), request.signal);
  const text = await embeddingList(model, made, body.encoding_format ?? "float");
  if (!request.signal.aborted) exchange.send(200, { "content-type": "application/json" }, text);
};
