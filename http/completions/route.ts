// Owns POST /v1/completions: body to request, events to body.
import { chosenModel } from "../chosen-model.ts";
import type { RouteHandler } from "../context.ts";
import { randomId } from "../ids.ts";
import { readJson } from "../json.ts";
import { originOf } from "../origin.ts";
import { sendAnswer } from "../send-answer.ts";
import { completionRequestSchema, toGenerateRequest } from "./request.ts";
import { textCompletion } from "./response.ts";

export const completions: RouteHandler = async (exchange, context) => {
  const { inference, log } = context;
  const body = readJson(exchange.request, completionRequestSchema, log);
  const model = chosenModel(exchange, inference, body);
  const request = toGenerateRequest(body, originOf(exchange, model, false));
  const options = {
    id: randomId("cmpl"),
    created: Math.floor(Date.now() / 1000),
    model: model.id,
    prefix: body.echo ? body.prompt : "",
    wantsLogprobs: typeof body.logprobs === "number",
  };
  await sendAnswer(exchange, context, request, options.prefix.length, (answer) => textCompletion(options, answer));
};
