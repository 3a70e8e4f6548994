// Pieces: sends a large response body as fast as the client reads. A response then needs little more memory than the piece
// being sent.
import { ServerError } from "../../../runtime/errors.ts";
import type { Exchange } from "../../exchange.ts";
import type { ReplyHeaders } from "../../server/edge.ts";
import { type Piece, writePiece } from "../../server/write-piece.ts";
import { cutAt } from "./json-pieces.ts";

/** Pieces of a body, of any length. */
export type Pieces = AsyncIterable<Piece> | Iterable<Piece>;

/** Maximum number of bytes or characters per write. */
const MAX_WRITE = 256 * 1024;

/**
 * Sends a 200 response in pieces. Nothing is sent before the second piece is ready: an error until then is thrown, so the
 * response gets the status of the error. A later error closes the connection, so that the client sees that the body is
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
    // A single piece is sent directly, with a content-length.
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
