// POST /v1/completions: converts the body to generation requests, and the generation events to a response body or a stream.
import type { ShownTokens } from "../../engines/text/tokenizer/token-texts.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { RouteHandler } from "../context.ts";
import { randomId } from "../shared/answer/ids.ts";
import { sendAnswers } from "../shared/answer/send-answer.ts";
import { chosenModel } from "../shared/chosen-model.ts";
import { generateAll } from "../shared/generate-all.ts";
import { originOf } from "../shared/origin.ts";
import { readRequest } from "../shared/read-request.ts";
import { streamEvents } from "../sse.ts";
import { namedByIds } from "./logprobs.ts";
import { type CompletionHead, textCompletion } from "./response.ts";
import { CompletionStream } from "./stream.ts";
import { completionTranslator } from "./translator.ts";

const decoder = new TextDecoder();

export const completions: RouteHandler = async (exchange, context) => {
  const { inference, config } = context;
  const { facts, asked, others } = await readRequest(exchange, context, completionTranslator);
  if (facts.isStreamed && !config.allowCompletionsStream) throw streamRefused();
  const model = chosenModel(exchange, inference, facts);
  const request = { ...asked, ...originOf(exchange, model, facts.isStreamed) };
  const requests = [request.prompt, ...others].map((prompt) => ({ ...request, prompt }));
  const head: CompletionHead = { id: randomId("cmpl"), created: Math.floor(Date.now() / 1000), model: model.id };
  const texts = () => inference.tokenTexts(model.id);
  const { echoes, shows, includesUsage } = facts;
  if (!facts.isStreamed) {
    await sendAnswers(exchange, context, requests, echoes.byteLength, (answers) =>
      textCompletion({ ...head, shows, prefixes: prefixesOf(echoes, texts) }, answers),
    );
    return;
  }
  const { signal } = exchange.request;
  const events = generateAll(inference, requests, signal, () => exchange.request.releaseBody());
  const prefixes = () => prefixesOf(echoes, texts);
  const shownTexts = () => (shows.namesAsIds ? namedByIds(texts()) : texts());
  const counts = { promptCount: requests.length, choiceCount: request.choices };
  const options = { ...counts, prefixes, includesUsage, shows, texts: shownTexts };
  await streamEvents(exchange, events, new CompletionStream(head, options), config);
};

/**
 * Returns one text per prompt: the echoed prompt that precedes each of its choices. The list is empty without `echo`. Call this
 * function while the model is loaded.
 */
function prefixesOf(echoes: Uint8Array, texts: () => ShownTokens): readonly string[] {
  const prompts = JSON.parse(decoder.decode(echoes)) as (string | number[])[];
  return prompts.map((prompt) => (typeof prompt === "string" ? prompt : textOf(prompt, texts())));
}

function textOf(tokens: readonly number[], texts: ShownTokens): string {
  return Buffer.concat(tokens.map((token) => texts.piece(token))).toString("utf8");
}

function streamRefused(): ServerError {
  const problem = "stream: text completions do not stream with this server's settings";
  const advice = "start the server with --allow-completions-stream, or use POST /v1/chat/completions";
  return new ServerError("unsupported", `${problem}; ${advice}`, { param: "stream" });
}
