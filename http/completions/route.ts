// Owns POST /v1/completions: body to request, events to body.
import { collectAnswer } from "../answer.ts";
import { chosenModel } from "../chosen-model.ts";
import type { RouteHandler } from "../context.ts";
import { randomId } from "../ids.ts";
import { readJson } from "../json.ts";
import { originOf } from "../origin.ts";
import { completionRequestSchema, toGenerateRequest } from "./request.ts";
import { textCompletion } from "./response.ts";

export const completions: RouteHandler = async (exchange, { inference, log }) => {
  const body = readJson(exchange.request, completionRequestSchema, log);
  const model = chosenModel(exchange, inference, body);
  const request = toGenerateRequest(body, originOf(exchange, model, false));
  const created = Math.floor(Date.now() / 1000);
  const answer = await collectAnswer(inference.generate(request, exchange.request.signal), request.choices);
  const options = {
    id: randomId("cmpl"),
    created,
    model: model.id,
    prefix: body.echo ? body.prompt : "",
    wantsLogprobs: typeof body.logprobs === "number",
  };
  exchange.json(200, textCompletion(options, answer));
};
