// Owns POST /v1/messages and POST /v1/messages/count_tokens: body to request, events to body or stream.
import { chosenModel } from "../chosen-model.ts";
import type { RouteHandler } from "../context.ts";
import { randomId } from "../ids.ts";
import { readJson } from "../json.ts";
import { originOf } from "../origin.ts";
import { streamEvents } from "../sse.ts";
import { collectMessage } from "./collect.ts";
import { countRequestSchema, messagesRequestSchema, toGenerateRequest } from "./request.ts";
import { MessageStream } from "./stream.ts";

export const messages: RouteHandler = async (exchange, { inference, config, log }) => {
  const body = readJson(exchange.request, messagesRequestSchema, log);
  const isStreamed = body.stream ?? false;
  const model = chosenModel(exchange, inference, body);
  const request = toGenerateRequest(body, originOf(exchange, model, isStreamed));
  const head = { id: randomId("msg", "_"), model: model.id };
  const events = inference.generate(request, exchange.request.signal);
  if (isStreamed) await streamEvents(exchange, events, new MessageStream(head, exchange.id), config);
  else exchange.json(200, await collectMessage(head, events));
};

export const countTokens: RouteHandler = async (exchange, { inference, log }) => {
  const body = readJson(exchange.request, countRequestSchema, log);
  const model = chosenModel(exchange, inference, body);
  const request = toGenerateRequest(body, originOf(exchange, model, false));
  const inputTokens = await inference.countTokens(request, exchange.request.signal);
  exchange.json(200, { input_tokens: inputTokens });
};
