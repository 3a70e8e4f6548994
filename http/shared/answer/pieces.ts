// Pieces: sends the body of a large response as fast as its client reads. Each response therefore needs little more memory than
// the piece being sent.
import { ServerError } from "../../../runtime/errors.ts";
import type { Exchange } from "../../exchange.ts";
import type { ReplyHeaders } from "../../server/edge.ts";
import { type Piece, writePiece } from "../../server/write-piece.ts";
import { cutAt } from "./json-pieces.ts";

/** Pieces of a body; each may have any length. */
export type Pieces = AsyncIterable<Piece> | Iterable<Piece>;

/** Maximum bytes, or characters, that are written at once. */
const MAX_WRITE = 256 * 1024;

/**
 * Sends a 200 response in pieces. Nothing is sent before the second piece is ready. An error before this point is thrown, so
 * the response has the status of the error. A later error closes the connection, which tells the client that the body is
 * incomplete. A client that reads nothing for `readerStallMs` is disconnected.
 */
export async function sendPieces(
  exchange: Exchange,
  headers: ReplyHeaders,
  pieces: Pieces,
  { readerStallMs }: { readonly readerStallMs: number },
): Promise<void> {
  const writes = cut(pieces);
  try {
    const first = await writes.next();
    const second = first.done ? first : await writes.next();
    // A single piece is sent at once, with a content-length.
    if (second.done) exchange.send(200, headers, first.done ? "" : first.value);
    else await stream(exchange, headers, [first.value ?? "", second.value], writes, readerStallMs);
  } finally {
    await writes.return(undefined);
  }
}

async function stream(
  exchange: Exchange,
  headers: ReplyHeaders,
  begun: readonly Piece[],
  rest: AsyncIterable<Piece>,
  readerStallMs: number,
): Promise<void> {
  const { signal } = exchange.request;
  const sink = exchange.openStream(headers);
  try {
    for (const piece of begun) await writePiece(sink, piece, readerStallMs);
    for await (const piece of rest) {
      if (signal.aborted) return;
      await writePiece(sink, piece, readerStallMs);
    }
    sink.end();
  } catch (thrown) {
    if (!signal.aborted && !(thrown instanceof ServerError)) exchange.unexpected(thrown);
    sink.abort();
  }
}

async function* cut(pieces: Pieces): AsyncGenerator<Piece, undefined> {
  for await (const piece of pieces) {
    for (let at = 0; at < piece.length; ) {
      const isText = typeof piece === "string";
      const end = isText ? cutAt(piece, at + MAX_WRITE) : at + MAX_WRITE;
      yield isText ? piece.slice(at, end) : piece.subarray(at, end);
      at = end;
    }
  }
}
