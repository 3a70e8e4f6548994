// Owns POST /v1/responses: body to request, events to one resource or to a stream, or to a resource that is generated while
// nobody waits.
import { randomBytes } from "node:crypto";
import type { ResolvedModel } from "../../actors/inference.ts";
import type { GenerateRequest } from "../../engines/chat.ts";
import { fromErrorRecord, ServerError } from "../../runtime/errors.ts";
import { chosenModel } from "../chosen-model.ts";
import { clientOf } from "../client.ts";
import type { Context, RouteHandler } from "../context.ts";
import { type Exchange, jsonHeaders } from "../exchange.ts";
import { readJson } from "../json.ts";
import { originOf } from "../origin.ts";
import { sendPieces } from "../pieces.ts";
import { streamEvents } from "../sse.ts";
import { conversation, strayResult } from "./conversation.ts";
import { earlierItems, inputItems } from "./input.ts";
import type { InputItem } from "./input-items.ts";
import { itemTexts } from "./item-texts.ts";
import { askedRequest, type ResponseRequestBody, responseRequestSchema } from "./request.ts";
import { settingsText } from "./resource.ts";
import type { ResponsePlan, ResponseRun } from "./response-run.ts";
import { namespacedNames } from "./tools.ts";

export const createResponse: RouteHandler = async (exchange, context) => {
  const { inference, log, responses, answerMemory, tokenTexts } = context;
  const body = readJson(exchange.request, responseRequestSchema, log, Number.POSITIVE_INFINITY);
  const model = chosenModel(exchange, inference, body);

  const id = `resp_${randomBytes(16).toString("hex")}`;
  const previousId = body.previous_response_id ?? null;
  const earlier = await earlierItems(previousId, responses);
  const input = await inputItems(body.input, id, responses);
  const request = requestOf(body, [...earlier, ...input], exchange, model);
  const createdAt = Math.floor(Date.now() / 1000);
  const plan: ResponsePlan = {
    head: { id, createdAt, model: model.id, settings: settingsText(body), namespacedNames: namespacedNames(body) },
    client: clientOf(exchange.request),
    previousId,
    input: itemTexts(input),
    isStored: body.store ?? true,
    isBackground: body.background ?? false,
    isStreamed: body.stream ?? false,
    tokenTexts,
    lease: answerMemory.lease(request.client),
  };
  if (plan.isBackground) await answerBackground(exchange, context, plan, request);
  else await answerWaiting(exchange, context, plan, request);
};

function requestOf(
  body: ResponseRequestBody,
  items: readonly InputItem[],
  exchange: Exchange,
  model: ResolvedModel,
): GenerateRequest {
  if (items.length === 0)
    throw new ServerError("invalid_value", "input: expected something to answer", { param: "input" });
  const stray = strayResult(items);
  if (stray !== null) {
    const text = `input: expected a function_call of call_id ${JSON.stringify(stray.call_id)} before its function_call_output`;
    throw new ServerError("invalid_value", text, { param: "input" });
  }
  const messages = conversation(body.instructions ?? null, items);
  return { ...askedRequest(body, messages), ...originOf(exchange, model, body.stream ?? false) };
}

/** The client waits: it hangs up, and the generation ends. */
async function answerWaiting(
  exchange: Exchange,
  { inference, config, responses }: Context,
  plan: ResponsePlan,
  request: GenerateRequest,
): Promise<void> {
  const run = responses.begin(plan);
  plan.lease.retain();
  try {
    const events = inference.generate(request, AbortSignal.any([exchange.request.signal, run.signal]));
    if (plan.isStreamed) await streamEvents(exchange, events, run, config);
    else await answerWhole(exchange, events, run, config);
  } finally {
    run.abandon();
    plan.lease.release();
  }
}

async function answerWhole(
  exchange: Exchange,
  events: ReturnType<Context["inference"]["generate"]>,
  run: ResponseRun,
  config: Context["config"],
): Promise<void> {
  for await (const batch of events) {
    const last = batch.at(-1);
    // The client is told so, and never learns of an id: there is nothing to keep.
    if (last?.type === "error") throw fromErrorRecord(last.error);
    run.encode(batch);
    if (run.isEnded) break;
  }
  if (run.isEnded) {
    await sendPieces(exchange, jsonHeaders, run.json(), config);
    return;
  }
  if (exchange.request.signal.aborted) return;
  if (run.signal.aborted) throw new ServerError("cancelled", "the response was deleted while it was generated");
  throw new ServerError("peer_gone", "the generation ended before it was done; send the request again");
}

/** The response is generated whether or not anybody reads its stream. */
async function answerBackground(
  exchange: Exchange,
  { inference, config, responses }: Context,
  plan: ResponsePlan,
  request: GenerateRequest,
): Promise<void> {
  const run = await responses.beginBackground(plan, exchange.request.bodyBytes);
  // The reader is there before the first event is: nothing is dropped before its client has had it.
  const reader = run.log?.creatorReader(exchange.request.signal);
  void responses.pump(run, inference.generate(request, run.signal));
  if (reader === undefined) await sendPieces(exchange, jsonHeaders, run.json(), config);
  else await streamEvents(exchange, reader.batches(), reader, config);
}
