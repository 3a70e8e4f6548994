// Owns POST /v1/chat/completions: body to request, events to body or stream.
import { collectAnswer } from "../answer.ts";
import { chosenModel } from "../chosen-model.ts";
import type { RouteHandler } from "../context.ts";
import { randomId } from "../ids.ts";
import { readJson } from "../json.ts";
import { originOf } from "../origin.ts";
import { streamEvents } from "../sse.ts";
import { chatRequestSchema, toGenerateRequest } from "./request.ts";
import { type CompletionHead, chatCompletion } from "./response.ts";
import { ChatStream } from "./stream.ts";

export const chatCompletions: RouteHandler = async (exchange, { inference, config, log }) => {
  const body = readJson(exchange.request, chatRequestSchema, log);
  const model = chosenModel(exchange, inference, body);
  const request = toGenerateRequest(body, originOf(exchange, model, body.stream ?? false));
  const head: CompletionHead = { id: randomId("chatcmpl"), created: Math.floor(Date.now() / 1000), model: model.id };
  const events = inference.generate(request, exchange.request.signal);
  if (body.stream) {
    const codec = new ChatStream(head, request.choices, body.stream_options?.include_usage ?? false);
    await streamEvents(exchange, events, codec, config);
    return;
  }
  const answer = await collectAnswer(events, request.choices);
  exchange.json(200, chatCompletion(head, answer, body.logprobs ?? false));
};
