// POST /v1/messages and POST /v1/messages/count_tokens: convert the body to a generation request, and the generation events to
// a response body or a stream.
import type { RouteHandler } from "../context.ts";
import { offeredBy, startRun } from "../shared/agent/start-run.ts";
import { randomId } from "../shared/answer/ids.ts";
import { sendAnswer } from "../shared/answer/send-answer.ts";
import { chosenModel } from "../shared/chosen-model.ts";
import { originOf } from "../shared/origin.ts";
import { readRequest } from "../shared/read-request.ts";
import { streamEvents } from "../sse.ts";
import { countTranslator, messagesTranslator } from "./request/translator.ts";
import { wholeMessage } from "./response.ts";
import { MessageStream } from "./stream.ts";

export const messages: RouteHandler = async (exchange, context) => {
  const { inference, config } = context;
  const { facts, asked, agent } = await readRequest(exchange, context, messagesTranslator, offeredBy(context));
  const model = chosenModel(exchange, inference, facts);
  const request = { ...asked, ...originOf(exchange, model, facts.isStreamed) };
  const head = { id: randomId("msg", "_"), model: model.id };
  if (!facts.isStreamed) {
    await sendAnswer(exchange, context, { request, agent }, 0, (answer) =>
      wholeMessage(head, answer, agent?.isPlain === true),
    );
    return;
  }
  const { signal } = exchange.request;
  const events = startRun(context, { request, agent }, signal, () => exchange.request.releaseBody());
  await streamEvents(exchange, events, new MessageStream(head, exchange.id, agent?.isPlain !== true), config);
};

export const countTokens: RouteHandler = async (exchange, context) => {
  const { inference } = context;
  const { facts, asked } = await readRequest(exchange, context, countTranslator, offeredBy(context));
  const model = chosenModel(exchange, inference, facts);
  const request = { ...asked, ...originOf(exchange, model, false) };
  const inputTokens = await inference.countTokens(request, exchange.request.signal);
  exchange.json(200, { input_tokens: inputTokens });
};
