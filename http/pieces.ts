// Bodies that are sent piece by piece, at the pace of their reader and with other work of the thread between the pieces.
import type { ReplyHeaders, StreamSink } from "./edge.ts";
import type { Exchange } from "./exchange.ts";
import { type StreamLimits, writePiece } from "./sse.ts";

type Piece = string | Uint8Array;

/**
 * Answers with a body in pieces; one of a single piece is sent whole, with its length. What is thrown before the second piece
 * is there is thrown here, and nothing has been sent; later it cuts the connection, and is logged. So does a reader that stalls.
 */
export async function sendPieces(
  exchange: Exchange,
  status: number,
  headers: ReplyHeaders,
  pieces: Iterable<Piece> | AsyncIterable<Piece>,
  limits: StreamLimits,
): Promise<void> {
  if (exchange.request.signal.aborted) return;
  const iterator = Symbol.asyncIterator in pieces ? pieces[Symbol.asyncIterator]() : pieces[Symbol.iterator]();
  try {
    const first = await iterator.next();
    const second = first.done ? first : await iterator.next();
    if (first.done || second.done) exchange.send(status, headers, first.done ? "" : first.value);
    else await sendRest(exchange, exchange.openStream(status, headers), [first.value, second.value], iterator, limits);
  } finally {
    await iterator.return?.();
  }
}

async function sendRest(
  exchange: Exchange,
  sink: StreamSink,
  begun: readonly Piece[],
  rest: Iterator<Piece> | AsyncIterator<Piece>,
  { readerStallMs }: StreamLimits,
): Promise<void> {
  const { signal } = exchange.request;
  try {
    for (const piece of begun) await writePiece(sink, piece, readerStallMs);
    for (let next = await rest.next(); !next.done && !signal.aborted; next = await rest.next()) {
      await writePiece(sink, next.value, readerStallMs);
    }
    if (!signal.aborted) sink.end();
  } catch (thrown) {
    sink.abort();
    exchange.unexpected(thrown);
  }
}
