// Owns the routes of one response: fetch it, or its stream once more; delete it; cancel it; list what it was given.
import { ServerError } from "../../runtime/errors.ts";
import type { RouteHandler } from "../context.ts";
import type { Exchange } from "../exchange.ts";
import { streamEvents } from "../sse.ts";
import { inputItemsQuery, readQuery, retrieveQuery } from "./query.ts";

const PAGE_LENGTH = 20;

export const retrieveResponse: RouteHandler = async (exchange, { responses, config }) => {
  const id = idOf(exchange);
  const { stream, starting_after: after } = readQuery(exchange.request.query, retrieveQuery);
  if (stream !== "true") {
    sendJson(exchange, await responses.body(id));
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

export const cancelResponse: RouteHandler = async (exchange, { responses }) => {
  sendJson(exchange, await responses.cancel(idOf(exchange)));
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

function sendJson(exchange: Exchange, body: string): void {
  exchange.send(200, { "content-type": "application/json" }, body);
}
