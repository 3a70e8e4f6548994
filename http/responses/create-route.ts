// POST /v1/responses: converts the body to a generation request, and the generation events to a response resource or a stream.
// A background response is generated even if the client disconnects. A request may also arrive as a message on a WebSocket
// connection; its response is always streamed.
import { randomBytes } from "node:crypto";
import type { ClaimedResponse, RestartRecord } from "../../actors/api/stored-responses.ts";
import { fromErrorRecord, ServerError } from "../../runtime/errors.ts";
import type { Context, RouteHandler } from "../context.ts";
import { type Exchange, jsonHeaders } from "../exchange.ts";
import { clientOf } from "../server/client.ts";
import { runRequest } from "../shared/agent/request-fields.ts";
import { offeredBy, type RunRequest, startRun, takesExtensions } from "../shared/agent/start-run.ts";
import { sendPieces } from "../shared/answer/pieces.ts";
import { chosenModel } from "../shared/chosen-model.ts";
import { originOf } from "../shared/origin.ts";
import { readRequest } from "../shared/read-request.ts";
import { streamEvents } from "../sse.ts";
import { echoedSettings } from "./fold/resource.ts";
import { joinedItemTexts } from "./request/item-texts.ts";
import { messageTranslator, responseTranslator } from "./request/translator.ts";
import { wholeRequest } from "./request/whole-request.ts";
import type { ResponsePlan, ResponseRun } from "./response-run.ts";

export function newResponseId(): string {
  return `resp_${randomBytes(16).toString("hex")}`;
}

export const createResponse: RouteHandler = (exchange, context) => respond(exchange, context, null);

/** Creates a response. `claimed`: background response taken over from a server that has ended; null: a new response. */
export async function respond(exchange: Exchange, context: Context, claimed: ClaimedResponse | null): Promise<void> {
  const { inference, answerMemory, tokenTexts, responses } = context;
  const id = claimed?.id ?? newResponseId();
  const { socket } = exchange.request;
  const restart = responses.restartsBackground ? restartOf(exchange.request.body, claimed) : null;
  // Every request removes the connection's last response, even if the request fails. No later request can continue that
  // response.
  const last = socket === undefined ? null : responses.last.take(socket);
  const translator = socket === undefined ? responseTranslator : messageTranslator;
  const parameters = { responseId: id, offered: offeredBy(context) };
  const translation = await readRequest(exchange, context, translator, parameters);
  const { facts } = translation;
  const model = chosenModel(exchange, inference, facts);
  const client = clientOf(exchange.request);
  const kept = answerMemory.lease(client);
  try {
    const { asked, agent, earlier, input } = await wholeRequest(exchange, context, translation, kept, last);
    const { namespacedNames, includesSources, previousId, inputStart, isStored, isBackground, isStreamed } = facts;
    const settings = echoedSettings(facts.settings, asked, model.defaults);
    const plan: ResponsePlan = {
      head: {
        id,
        createdAt: claimed?.createdAt ?? Math.floor(Date.now() / 1000),
        model: model.id,
        settings,
        namespacedNames,
        includesSources,
      },
      client,
      // If the previous response is not stored, the record of this response also contains the earlier conversation.
      ...(last?.id === previousId && isStored
        ? { previousId: null, input: joinedItemTexts([...earlier, input]) }
        : { previousId, input }),
      inputStart,
      onItems:
        socket === undefined || isStored
          ? null
          : (output) => responses.last.keep(socket, client, { id, items: [...earlier, input, output] }),
      isStored,
      isBackground,
      restart: isBackground ? restart : null,
      isStreamed,
      hasExtensions: takesExtensions(exchange, agent),
      tokenTexts,
      lease: answerMemory.lease(client),
    };
    const run = agent === null ? { asked, agent } : runRequest(asked, agent);
    const request = { request: { ...run.asked, ...originOf(exchange, model, isStreamed) }, agent: run.agent };
    const onPrepared = once(() => {
      kept.release();
      exchange.request.releaseBody(settings.byteLength + (isStored ? input.texts.byteLength : 0));
    });
    if (isBackground) await answerBackground(exchange, context, plan, request, onPrepared);
    else await answerWaiting(exchange, context, plan, request, onPrepared);
  } catch (thrown) {
    kept.release();
    throw thrown;
  }
}

/**
 * Returns the record with which another server can generate the response. Its copy of the body is needed because a text worker
 * may take over the body's memory. Bodies that cannot request a background response are not copied.
 */
function restartOf(body: Uint8Array, claimed: ClaimedResponse | null): RestartRecord | null {
  const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  return bytes.includes('"background"') ? { request: new Uint8Array(bytes), count: claimed?.count ?? 0 } : null;
}

/** Generates a response while the client waits. The generation ends if the client disconnects. */
async function answerWaiting(
  exchange: Exchange,
  context: Context,
  plan: ResponsePlan,
  request: RunRequest,
  onPrepared: () => void,
): Promise<void> {
  const { config, responses } = context;
  const run = responses.begin(plan);
  plan.lease.retain();
  try {
    const signal = AbortSignal.any([exchange.request.signal, run.signal]);
    const events = startRun(context, request, signal, onPrepared);
    if (plan.isStreamed) await streamEvents(exchange, events, run, config);
    else await answerWhole(exchange, events, run, config);
  } finally {
    run.abandon();
    plan.lease.release();
  }
}

async function answerWhole(
  exchange: Exchange,
  events: ReturnType<typeof startRun>,
  run: ResponseRun,
  config: Context["config"],
): Promise<void> {
  for await (const batch of events) {
    const last = batch.at(-1);
    // Nothing is stored, because the client receives only the error and never learns the id of the response.
    if (last?.type === "error") throw fromErrorRecord(last.error);
    run.encode(batch);
    if (run.isEnded) break;
  }
  if (run.isEnded) {
    await run.held();
    await sendPieces(exchange, jsonHeaders, run.json(), config);
    return;
  }
  if (exchange.request.signal.aborted) return;
  if (run.signal.aborted) throw new ServerError("cancelled", "the response was deleted while it was generated");
  throw new ServerError("peer_gone", "the generation ended before it was done; send the request again");
}

/** Generates a response in the background, even if no client reads its stream. */
async function answerBackground(
  exchange: Exchange,
  context: Context,
  plan: ResponsePlan,
  request: RunRequest,
  onPrepared: () => void,
): Promise<void> {
  const { config, responses } = context;
  const run = await responses.beginBackground(plan, exchange.request.bodyBytes);
  // A response taken over from another server has no client here. Its HTTP reply ends as soon as the response has begun.
  const isRead = plan.restart === null || plan.restart.count === 0;
  // The reader is created before the first event. The log then keeps all events that the client has not received.
  const reader = isRead ? run.log?.creatorReader(exchange.request.signal) : undefined;
  void responses.pump(run, startRun(context, request, run.signal, onPrepared));
  if (reader === undefined) await sendPieces(exchange, jsonHeaders, run.json(), config);
  else await streamEvents(exchange, reader.batches(), reader, config);
}

/**
 * Returns a function that runs the action once and then drops its reference to it. Otherwise, a background response would keep
 * its exchange in memory after the exchange has ended.
 */
function once(action: () => void): () => void {
  let pending: (() => void) | null = action;
  return () => {
    pending?.();
    pending = null;
  };
}
