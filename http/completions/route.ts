// POST /v1/completions: body to request, events to body.
import type { RouteHandler } from "../context.ts";
import { randomId } from "../shared/answer/ids.ts";
import { sendAnswer } from "../shared/answer/send-answer.ts";
import { chosenModel } from "../shared/chosen-model.ts";
import { originOf } from "../shared/origin.ts";
import { readRequest } from "../shared/read-request.ts";
import { textCompletion } from "./response.ts";
import { completionTranslator } from "./translator.ts";

const decoder = new TextDecoder();

export const completions: RouteHandler = async (exchange, context) => {
  const { inference } = context;
  const { facts, asked } = await readRequest(exchange, context, completionTranslator);
  const model = chosenModel(exchange, inference, facts);
  const request = { ...asked, ...originOf(exchange, model, false) };
  const { prefix, wantsLogprobs } = facts;
  const created = Math.floor(Date.now() / 1000);
  const options = { id: randomId("cmpl"), created, model: model.id, wantsLogprobs };
  await sendAnswer(exchange, context, request, prefix.byteLength, (answer) =>
    textCompletion({ ...options, prefix: JSON.parse(decoder.decode(prefix)) }, answer),
  );
};
