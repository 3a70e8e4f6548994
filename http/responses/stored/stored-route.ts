// Routes of one running or stored response: retrieve it or its event stream, delete it, cancel it, and list its input items.
import { joinBytes } from "../../../runtime/bytes.ts";
import type { RouteHandler } from "../../context.ts";
import { type Exchange, eventStreamHeaders, jsonHeaders } from "../../exchange.ts";
import type { Piece } from "../../server/write-piece.ts";
import { sendPieces } from "../../shared/answer/pieces.ts";
import { readQuery } from "../../shared/read-query.ts";
import { lineSafe, streamEvents } from "../../sse.ts";
import { inputItemsQuery, retrieveQuery } from "../request/query.ts";
import { EventLog } from "./event-log.ts";
import { FollowedLog } from "./followed-log.ts";

const PAGE_LENGTH = 20;

export const retrieveResponse: RouteHandler = async (exchange, { responses, config }) => {
  const id = idOf(exchange);
  const { stream, starting_after } = readQuery(exchange.request.query, retrieveQuery);
  if (stream !== "true") {
    await sendPieces(exchange, jsonHeaders, responses.body(id), config);
    return;
  }
  const after = starting_after === undefined ? -1 : Number(starting_after);
  const events = await responses.events(id, after);
  if (events instanceof EventLog) {
    const reader = events.reader(after, exchange.request.signal);
    await streamEvents(exchange, reader.batches(), reader, config);
  } else if (events instanceof FollowedLog) {
    await streamEvents(exchange, events.batches(exchange.request.signal), events, config);
  } else await sendPieces(exchange, eventStreamHeaders, lineSafe(events), config);
};

export const deleteResponse: RouteHandler = async (exchange, { responses }) => {
  const id = idOf(exchange);
  await responses.delete(id);
  exchange.json(200, { id, object: "response.deleted", deleted: true });
};

export const cancelResponse: RouteHandler = async (exchange, { responses, config }) => {
  await sendPieces(exchange, jsonHeaders, responses.cancel(idOf(exchange)), config);
};

export const listInputItems: RouteHandler = async (exchange, { responses, config }) => {
  const { limit, order = "desc", after = null } = readQuery(exchange.request.query, inputItemsQuery);
  const count = limit === undefined ? PAGE_LENGTH : Number(limit);
  const { page, texts } = await responses.inputItems({ id: idOf(exchange), order, after, limit: count });
  const rest = JSON.stringify({ first_id: page.firstId, last_id: page.lastId, has_more: page.hasMore });
  await sendPieces(exchange, jsonHeaders, listOf(texts, `,${rest.slice(1)}`), config);
};

/** Yields the JSON of an item list, built from the items' JSON texts. A short list is a single piece. */
async function* listOf(texts: AsyncIterable<Piece>, rest: string): AsyncGenerator<Piece> {
  let held: Piece = '{"object":"list","data":[';
  let isFirst = true;
  for await (const piece of texts) {
    if (isFirst) held = joined(held, piece);
    else {
      yield held;
      held = piece;
    }
    isFirst = false;
  }
  yield joined(held, `]${rest}`);
}

function joined(...pieces: readonly Piece[]): Piece {
  return joinBytes(pieces.map((piece) => Buffer.from(piece)));
}

function idOf(exchange: Exchange): string {
  return exchange.parameters.response_id ?? "";
}
