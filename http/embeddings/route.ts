// POST /v1/embeddings: body to request, vectors to body.
import { ServerError } from "../../runtime/errors.ts";
import type { RouteHandler } from "../context.ts";
import { jsonHeaders } from "../exchange.ts";
import { clientOf } from "../server/client.ts";
import { sendPieces } from "../shared/answer/pieces.ts";
import { chosenModel } from "../shared/chosen-model.ts";
import { readRequest } from "../shared/read-request.ts";
import { embeddingList } from "./response.ts";
import { embeddingTranslator } from "./translator.ts";

export const embeddings: RouteHandler = async (exchange, context) => {
  const { request } = exchange;
  const { inference, answerMemory, config } = context;
  const { model: named, format, asked } = await readRequest(exchange, context, embeddingTranslator);
  const { id: model, adapter } = chosenModel(exchange, inference, { model: named });
  if (adapter !== null) {
    const text = `model: expected a model without an adapter, as embeddings do not use adapters; send ${JSON.stringify(model)}`;
    throw new ServerError("unsupported", text, { param: "model" });
  }
  const client = clientOf(request);
  const lease = answerMemory.lease(client);
  try {
    const made = await inference.embed({ ...asked, model, client }, request.signal);
    lease.add(made.vectors.reduce((bytes, vector) => bytes + vector.byteLength, 0));
    await sendPieces(exchange, jsonHeaders, embeddingList(model, made, format), config);
  } finally {
    lease.release();
  }
};
