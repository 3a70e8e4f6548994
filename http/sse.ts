// Event streaming: sends the events of a generation as server-sent events, or in another stream format of the protocol. Handles
// keep-alive, back pressure and errors. The protocol's codec creates the text.
import type { AgentEvent } from "../actors/api/agent/agents.ts";
import { type ErrorRecord, fromErrorRecord, ServerError, toErrorRecord } from "../runtime/errors.ts";
import { type Exchange, eventStreamHeaders } from "./exchange.ts";
import type { ReplyHeaders, StreamSink } from "./server/edge.ts";
import { drained, type Piece, writePiece } from "./server/write-piece.ts";

/** Encoder of the events in a stream. `Event`: type of the events. */
export interface StreamCodec<Event = AgentEvent> {
  /**
   * Returns the text of one batch of events; "" if there is nothing to send yet. A long text is returned in pieces. All pieces
   * are consumed before the next batch.
   */
  encode(events: readonly Event[]): string | Iterable<string>;
  /** Returns the text that ends a stream if an error occurs after its start. */
  fail(error: ErrorRecord): string | Iterable<string>;
  /** Whether the text that ends the stream has been returned by `encode` or `fail`. */
  readonly isEnded: boolean;
  /**
   * Returns a promise to wait for before the text returned by `encode` is sent; null if the text may be sent immediately.
   * Optional.
   */
  held?(): Promise<unknown> | null;
  /** Text sent to keep an idle stream open; default: an SSE comment line. */
  readonly keepAlive?: string;
  /** Response headers; default: the headers of an SSE stream. */
  readonly headers?: ReplyHeaders;
}

export interface StreamLimits {
  readonly keepAliveMs: number;
  readonly readerStallMs: number;
}

/**
 * Sends a stream. Nothing is sent before the first event, so that an error can be thrown and gets its own HTTP status. If there
 * is no event within `keepAliveMs`, the stream begins with a comment line.
 */
export async function streamEvents<Event extends { readonly type: string }>(
  exchange: Exchange,
  events: AsyncIterable<readonly Event[]>,
  codec: StreamCodec<Event>,
  limits: StreamLimits,
): Promise<void> {
  const writer = new SseWriter(exchange, codec, limits);
  try {
    for await (const batch of events) {
      const first = batch[0];
      if (!writer.hasBegun && isError(first)) throw fromErrorRecord(first.error);
      const text = codec.encode(batch);
      const held = codec.held?.() ?? null;
      if (held !== null) await held;
      if (typeof text !== "string") await writer.writePieces(text);
      else if (!writer.write(text)) await writer.drained();
      if (exchange.request.signal.aborted || codec.isEnded) break;
    }
    if (!codec.isEnded && !exchange.request.signal.aborted) {
      throw new ServerError("peer_gone", "the generation ended before it was done; send the request again");
    }
    // A stream that ends without any text is also a valid response.
    if (!exchange.request.signal.aborted) writer.begin();
  } catch (thrown) {
    if (!writer.hasBegun) throw thrown;
    if (exchange.request.signal.aborted) return;
    const text = codec.fail(thrown instanceof ServerError ? toErrorRecord(thrown) : exchange.unexpected(thrown));
    if (typeof text === "string") writer.write(text);
    else await writer.writePieces(text);
  } finally {
    writer.end();
  }
}

/** Returns whether an event reports that the stream has failed. */
function isError(event: object | undefined): event is { readonly error: ErrorRecord } {
  return event !== undefined && "type" in event && event.type === "error" && "error" in event;
}

class SseWriter {
  readonly #exchange: Exchange;
  readonly #codec: Pick<StreamCodec, "keepAlive" | "headers">;
  readonly #limits: StreamLimits;
  readonly #timer: NodeJS.Timeout | undefined;
  #sink: StreamSink | null = null;
  /** Whether the writer waits for the client, or is in the middle of an event. No keep-alive text is sent then. */
  #isBusy = false;

  constructor(exchange: Exchange, codec: Pick<StreamCodec, "keepAlive" | "headers">, limits: StreamLimits) {
    this.#exchange = exchange;
    this.#codec = codec;
    this.#limits = limits;
    if (limits.keepAliveMs > 0) this.#timer = setTimeout(() => this.#keepAlive(), limits.keepAliveMs);
  }

  get hasBegun(): boolean {
    return this.#sink !== null;
  }

  begin(): StreamSink {
    this.#sink ??= this.#exchange.openStream(this.#codec.headers ?? eventStreamHeaders);
    return this.#sink;
  }

  /** Writes a text. If this returns false, the caller must wait for `drained` before the next write. */
  write(text: string): boolean {
    if (text === "") return true;
    const sink = this.begin();
    this.#timer?.refresh();
    return sink.write(withoutOtherLineEnds(text));
  }

  /**
   * Waits until the client has read enough. A client that does not read is disconnected after a time limit, which aborts the
   * request's signal.
   */
  async drained(): Promise<void> {
    const sink = this.#sink;
    if (sink === null) return;
    this.#isBusy = true;
    await drained(sink, this.#limits.readerStallMs);
    this.#isBusy = false;
    this.#timer?.refresh();
  }

  /** Writes pieces as fast as the client reads. On an error, disconnects the client, because an event may be incomplete. */
  async writePieces(pieces: Iterable<string>): Promise<void> {
    const { signal } = this.#exchange.request;
    const sink = this.begin();
    this.#isBusy = true;
    try {
      for (const piece of pieces) {
        await writePiece(sink, withoutOtherLineEnds(piece), this.#limits.readerStallMs);
        if (signal.aborted) break;
      }
    } catch (thrown) {
      sink.abort();
      throw thrown;
    } finally {
      this.#isBusy = false;
      this.#timer?.refresh();
    }
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#sink?.end();
  }

  #keepAlive(): void {
    if (!this.#isBusy) this.write(this.#codec.keepAlive ?? ": keep-alive\n\n");
    else this.#timer?.refresh();
  }
}

const otherLineEnds = /[\u0085\u2028\u2029]/g;

/**
 * Escapes the characters at which clients in Python (httpx) end a line, besides the line feed. Streams have them only in JSON
 * strings.
 */
export function withoutOtherLineEnds(text: string): string {
  return text.replace(otherLineEnds, (end) => `\\u${end.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Yields the pieces of a stored stream as text with those characters escaped. */
export async function* lineSafe(pieces: AsyncIterable<Piece>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  for await (const piece of pieces) {
    yield withoutOtherLineEnds(typeof piece === "string" ? piece : decoder.decode(piece, { stream: true }));
  }
}
