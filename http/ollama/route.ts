// POST /api/chat and POST /api/generate: convert the body to a generation request, and the generation events to a response body
// or to JSON lines. A request without a prompt loads or unloads the model.
import type { ModelManagement } from "../../actors/api/model-management.ts";
import { fromErrorRecord } from "../../runtime/errors.ts";
import type { Context, RouteHandler } from "../context.ts";
import type { Exchange } from "../exchange.ts";
import { sendAnswer } from "../shared/answer/send-answer.ts";
import { originOf } from "../shared/origin.ts";
import { readRequest } from "../shared/read-request.ts";
import type { AskedTranslation, BodyTranslator } from "../shared/translation.ts";
import { streamEvents } from "../sse.ts";
import { chatTranslator } from "./chat.ts";
import type { GenerationFacts } from "./fields.ts";
import { generateTranslator } from "./generate.ts";
import { namedModel } from "./named-model.ts";
import { chatShape, generateShape, head, type Shape, wholeBody } from "./response.ts";
import { LineStream } from "./stream.ts";

export const ollamaChat: RouteHandler = (exchange, context) => answer(exchange, context, chatTranslator, chatShape);

export const ollamaGenerate: RouteHandler = (exchange, context) =>
  answer(exchange, context, generateTranslator, generateShape);

async function answer(
  exchange: Exchange,
  context: Context,
  translator: BodyTranslator<AskedTranslation<GenerationFacts>>,
  shape: Shape,
): Promise<void> {
  const { inference, models, config } = context;
  const { facts, asked } = await readRequest(exchange, context, translator);
  const chosen = namedModel(exchange, inference, facts.model);
  const model = facts.model ?? chosen.id;
  if (facts.change !== null) {
    await changeState(models, chosen.id, facts.change);
    exchange.json(200, { ...head(model), ...shape({ content: "" }), done: true, done_reason: facts.change });
    return;
  }
  const request = { ...asked, ...originOf(exchange, chosen, facts.isStreamed) };
  const { receivedAt, id: requestId } = exchange;
  if (!facts.isStreamed) {
    await sendAnswer(exchange, context, { request, agent: null }, 0, (whole) =>
      wholeBody(model, shape, whole, receivedAt),
    );
    return;
  }
  const events = inference.generate(request, exchange.request.signal, () => exchange.request.releaseBody());
  const texts = () => inference.tokenTexts(chosen.id);
  const codec = new LineStream({ model, shape, receivedAt, requestId, texts });
  await streamEvents(exchange, events, codec, config);
}

/** Loads or unloads a model. Does nothing if the model is already in the requested state. */
async function changeState(models: ModelManagement, id: string, change: "load" | "unload"): Promise<void> {
  const { status } = models.statusOf(id);
  if (status === (change === "load" ? "loaded" : "unloaded")) return;
  const { error } = await (change === "load" ? models.reload(id) : models.unload(id));
  if (error !== null) throw fromErrorRecord(error);
}
