// POST /v1/embeddings: converts the body to an embedding request, and the vectors to a response body.
import type { RouteHandler } from "../context.ts";
import { sendEmbeddings } from "../shared/answer/send-embeddings.ts";
import { chosenModel } from "../shared/chosen-model.ts";
import { readRequest } from "../shared/read-request.ts";
import { embeddingList } from "./response.ts";
import { embeddingTranslator } from "./translator.ts";

export const embeddings: RouteHandler = async (exchange, context) => {
  const { model: named, format, asked } = await readRequest(exchange, context, embeddingTranslator);
  const model = chosenModel(exchange, context.inference, { model: named });
  await sendEmbeddings(exchange, context, model, asked, (made) => embeddingList(model.id, made, format));
};
