// POST /v1/rerank and POST /rerank: convert the body to a request for scores, and the scores to a response body.
import { ServerError } from "../../runtime/errors.ts";
import type { RouteHandler } from "../context.ts";
import { jsonHeaders } from "../exchange.ts";
import { clientOf } from "../server/client.ts";
import { randomId } from "../shared/answer/ids.ts";
import { jsonPieces } from "../shared/answer/json-pieces.ts";
import { sendPieces } from "../shared/answer/pieces.ts";
import { chosenModel } from "../shared/chosen-model.ts";
import { readRequest } from "../shared/read-request.ts";
import type { WireReranking } from "./operation.ts";
import { rerankTranslator } from "./translator.ts";

export const rerank: RouteHandler = async (exchange, context) => {
  const { request } = exchange;
  const { inference, config } = context;
  const { model: named, most, documents, asked } = await readRequest(exchange, context, rerankTranslator);
  const { id: model, adapter } = chosenModel(exchange, inference, { model: named });
  if (adapter !== null) {
    const text = `model: expected a model without an adapter, as scores do not use adapters; send ${JSON.stringify(model)}`;
    throw new ServerError("unsupported", text, { param: "model" });
  }
  const scored = await inference.embed({ ...asked, model, client: clientOf(request) }, request.signal);
  const results = scored.vectors
    .map((outputs, index) => ({ index, relevance_score: scored.isMaxSim ? (outputs[0] ?? 0) : scoreOf(outputs) }))
    .sort((one, other) => other.relevance_score - one.relevance_score || one.index - other.index)
    .slice(0, most)
    .map((result) => (documents === null ? result : { ...result, document: { text: documents[result.index] ?? "" } }));
  const usage = { prompt_tokens: scored.promptTokens, total_tokens: scored.promptTokens };
  const body: WireReranking = { id: randomId("rerank"), object: "list", model, results, usage };
  await sendPieces(exchange, jsonHeaders, jsonPieces(body), config);
};

/** Returns the relevance score from 0 to 1: the sigmoid of a single output, or the probability of the first of several labels. */
function scoreOf(outputs: Float32Array): number {
  const [first = 0] = outputs;
  return outputs.length === 1 ? 1 / (1 + Math.exp(-first)) : first;
}
