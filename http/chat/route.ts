// POST /v1/chat/completions: converts the body to a generation request, and the generation events to a response body or a
// stream.
import type { RouteHandler } from "../context.ts";
import { offeredBy, startRun, takesExtensions } from "../shared/agent/start-run.ts";
import { randomId } from "../shared/answer/ids.ts";
import { sendAnswer } from "../shared/answer/send-answer.ts";
import { chosenModel } from "../shared/chosen-model.ts";
import { originOf } from "../shared/origin.ts";
import { readRequest } from "../shared/read-request.ts";
import { streamEvents } from "../sse.ts";
import { type CompletionHead, chatCompletion } from "./response.ts";
import { ChatStream } from "./stream.ts";
import { chatTranslator } from "./translator.ts";

export const chatCompletions: RouteHandler = async (exchange, context) => {
  const { inference, config } = context;
  const { facts, asked, agent } = await readRequest(exchange, context, chatTranslator, offeredBy(context));
  const model = chosenModel(exchange, inference, facts);
  const request = { ...asked, ...originOf(exchange, model, facts.isStreamed) };
  const head: CompletionHead = { id: randomId("chatcmpl"), created: Math.floor(Date.now() / 1000), model: model.id };
  if (!facts.isStreamed) {
    await sendAnswer(exchange, context, { request, agent }, 0, (answer) =>
      chatCompletion(head, answer, facts.wantsLogprobs),
    );
    return;
  }
  const { signal } = exchange.request;
  const events = startRun(context, { request, agent }, signal, () => exchange.request.releaseBody());
  const texts = () => inference.tokenTexts(model.id);
  const codec = new ChatStream(head, {
    choiceCount: request.choices,
    includeUsage: facts.includesUsage,
    hasExtensions: takesExtensions(exchange, agent),
    texts,
  });
  await streamEvents(exchange, events, codec, config);
};
