// POST /v1/responses/input_tokens: counts the prompt tokens of a response request without generating output.
import type { RouteHandler } from "../context.ts";
import { clientOf } from "../server/client.ts";
import { offeredBy } from "../shared/agent/start-run.ts";
import { chosenModel } from "../shared/chosen-model.ts";
import { originOf } from "../shared/origin.ts";
import { readRequest } from "../shared/read-request.ts";
import { newResponseId } from "./create-route.ts";
import { responseTranslator } from "./request/translator.ts";
import { wholeRequest } from "./request/whole-request.ts";

export const countInputTokens: RouteHandler = async (exchange, context) => {
  const { inference, answerMemory } = context;
  const parameters = { responseId: newResponseId(), offered: offeredBy(context) };
  const translation = await readRequest(exchange, context, responseTranslator, parameters);
  const model = chosenModel(exchange, inference, translation.facts);
  const kept = answerMemory.lease(clientOf(exchange.request));
  try {
    const { asked } = await wholeRequest(exchange, context, translation, kept);
    const request = { ...asked, ...originOf(exchange, model, false) };
    const inputTokens = await inference.countTokens(request, exchange.request.signal);
    exchange.json(200, { object: "response.input_tokens", input_tokens: inputTokens });
  } finally {
    kept.release();
  }
};
