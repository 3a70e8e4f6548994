// Owns POST /v1/chat/completions: body to request, events to body or stream.
import { chosenModel } from "../chosen-model.ts";
import type { RouteHandler } from "../context.ts";
import { randomId } from "../ids.ts";
import { readJson } from "../json.ts";
import { originOf } from "../origin.ts";
import { sendAnswer } from "../send-answer.ts";
import { streamEvents } from "../sse.ts";
import { chatRequestSchema, toGenerateRequest } from "./request.ts";
import { type CompletionHead, chatCompletion } from "./response.ts";
import { ChatStream } from "./stream.ts";

export const chatCompletions: RouteHandler = async (exchange, context) => {
  const { inference, config, log } = context;
  const body = readJson(exchange.request, chatRequestSchema, log);
  const model = chosenModel(exchange, inference, body);
  const request = toGenerateRequest(body, originOf(exchange, model, body.stream ?? false));
  const head: CompletionHead = { id: randomId("chatcmpl"), created: Math.floor(Date.now() / 1000), model: model.id };
  if (!body.stream) {
    await sendAnswer(exchange, context, request, 0, (answer) => chatCompletion(head, answer, body.logprobs ?? false));
    return;
  }
  const events = inference.generate(request, exchange.request.signal);
  const includeUsage = body.stream_options?.include_usage ?? false;
  const texts = () => inference.tokenTexts(model.id);
  const codec = new ChatStream(head, { choiceCount: request.choices, includeUsage, texts });
  await streamEvents(exchange, events, codec, config);
};
