// Owns POST /v1/completions: body to request, events to body.
import { collectAnswer } from "../answer.ts";
import { clientOf } from "../client.ts";
import type { RouteHandler } from "../context.ts";
import { randomId } from "../ids.ts";
import { readJson } from "../json.ts";
import { completionRequestSchema, toGenerateRequest } from "./request.ts";
import { textCompletion } from "./response.ts";

export const completions: RouteHandler = async (exchange, { inference }) => {
  const body = readJson(exchange.request, completionRequestSchema);
  const model = inference.resolveModel(body.model ?? undefined);
  exchange.model = model;
  const request = toGenerateRequest(body, model, clientOf(exchange.request));
  const created = Math.floor(Date.now() / 1000);
  const answer = await collectAnswer(inference.generate(request, exchange.request.signal), request.choices);
  const options = {
    id: randomId("cmpl"),
    created,
    model,
    prefix: body.echo ? body.prompt : "",
    wantsLogprobs: typeof body.logprobs === "number",
  };
  exchange.json(200, textCompletion(options, answer));
};
