// Owns POST /v1/embeddings: body to request, vectors to body.
import { ServerError } from "../../runtime/errors.ts";
import { chosenModel } from "../chosen-model.ts";
import { clientOf } from "../client.ts";
import type { RouteHandler } from "../context.ts";
import { readJson } from "../json.ts";
import { sendPieces } from "../pieces.ts";
import { embeddingRequestSchema, toEmbedRequest } from "./request.ts";
import { embeddingList } from "./response.ts";

export const embeddings: RouteHandler = async (exchange, { inference, answerMemory, config, log }) => {
  const { request } = exchange;
  const body = readJson(request, embeddingRequestSchema, log);
  const { id: model, adapter } = chosenModel(exchange, inference, { model: body.model });
  if (adapter !== null) {
    const text = `model: expected a model without an adapter, as embeddings are made without; send ${JSON.stringify(model)}`;
    throw new ServerError("unsupported", text, { param: "model" });
  }
  const asked = toEmbedRequest(body, model, clientOf(request));
  const lease = answerMemory.lease(asked.client);
  try {
    const made = await inference.embed(asked, request.signal);
    lease.add(made.vectors.reduce((bytes, vector) => bytes + vector.byteLength, 0));
    const pieces = embeddingList(model, made, body.encoding_format ?? "float");
    await sendPieces(exchange, 200, { "content-type": "application/json" }, pieces, config);
  } finally {
    lease.release();
  }
};
