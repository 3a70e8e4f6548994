// POST /v1/chat/completions: body to request, events to body or stream.
import { collectAnswer } from "../answer.ts";
import { chosenModel } from "../chosen-model.ts";
import type { RouteHandler } from "../context.ts";
import { randomId } from "../ids.ts";
import { originOf } from "../origin.ts";
import { readRequest } from "../read-request.ts";
import { streamEvents } from "../sse.ts";
import { type CompletionHead, chatCompletion } from "./response.ts";
import { ChatStream } from "./stream.ts";
import { chatTranslator } from "./translator.ts";

export const chatCompletions: RouteHandler = async (exchange, context) => {
  const { inference, config } = context;
  const { facts, asked } = await readRequest(exchange, context, chatTranslator);
  const model = chosenModel(exchange, inference, facts);
  const request = { ...asked, ...originOf(exchange, model, facts.isStreamed) };
  const head: CompletionHead = { id: randomId("chatcmpl"), created: Math.floor(Date.now() / 1000), model: model.id };
  const events = inference.generate(request, exchange.request.signal);
  if (facts.isStreamed) {
    const codec = new ChatStream(head, request.choices, facts.includesUsage);
    await streamEvents(exchange, events, codec, config);
    return;
  }
  const answer = await collectAnswer(events, request.choices);
  exchange.json(200, chatCompletion(head, answer, facts.wantsLogprobs));
};
