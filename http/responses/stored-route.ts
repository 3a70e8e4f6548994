// Owns the routes of one response: fetch it, or its stream once more; delete it; cancel it; list what it was given.
import { ServerError } from "../../runtime/errors.ts";
import type { RouteHandler } from "../context.ts";
import type { Exchange } from "../exchange.ts";
import { PIECE_LENGTH } from "../json-pieces.ts";
import { sendPieces } from "../pieces.ts";
import { type StreamLimits, streamEvents } from "../sse.ts";
import { inputItemsQuery, readQuery, retrieveQuery } from "./query.ts";
import type { ResponseText } from "./responses.ts";

const PAGE_LENGTH = 20;

export const retrieveResponse: RouteHandler = async (exchange, { responses, config }) => {
  const id = idOf(exchange);
  const { stream, starting_after: after } = readQuery(exchange.request.query, retrieveQuery);
  if (stream !== "true") {
    await sendResponse(exchange, await responses.body(id), config);
    return;
  }
  const log = await responses.events(id);
  const reader = log.reader(after === undefined ? -1 : Number(after), exchange.request.signal);
  await streamEvents(exchange, reader.batches(), reader, config);
};

export const deleteResponse: RouteHandler = async (exchange, { responses }) => {
  const id = idOf(exchange);
  await responses.delete(id);
  exchange.json(200, { id, object: "response.deleted", deleted: true });
};

export const cancelResponse: RouteHandler = async (exchange, { responses, config }) => {
  await sendResponse(exchange, await responses.cancel(idOf(exchange)), config);
};

export const listInputItems: RouteHandler = async (exchange, { responses }) => {
  const { limit, order, after } = readQuery(exchange.request.query, inputItemsQuery);
  const given = await responses.inputItems(idOf(exchange));
  const items = order === "asc" ? given : given.toReversed();
  const from = after === undefined ? 0 : items.findIndex(({ id }) => id === after) + 1;
  if (after !== undefined && from === 0) {
    const text = `after: expected the id of an input item of this response, got ${JSON.stringify(after)}`;
    throw new ServerError("invalid_value", text, { param: "after" });
  }
  const data = items.slice(from, from + (limit === undefined ? PAGE_LENGTH : Number(limit)));
  exchange.json(200, {
    object: "list",
    data,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: from + data.length < items.length,
  });
};

function idOf(exchange: Exchange): string {
  return exchange.parameters.response_id ?? "";
}

/** Answers with a response. */
export async function sendResponse(exchange: Exchange, text: ResponseText, limits: StreamLimits): Promise<void> {
  const headers = { "content-type": "application/json" };
  if (typeof text === "string") exchange.send(200, headers, text);
  else await sendPieces(exchange, 200, headers, text instanceof Uint8Array ? slices(text) : text, limits);
}

function* slices(bytes: Uint8Array): Generator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += PIECE_LENGTH) yield bytes.subarray(at, at + PIECE_LENGTH);
}
