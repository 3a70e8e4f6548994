// Event streaming: pumps the events of a generation into a stream of server-sent events, with keep-alive comments, back
// pressure and errors. The codec of a protocol makes the text.
import type { GenerateEvent } from "../engines/generation.ts";
import { type ErrorRecord, fromErrorRecord, ServerError, toErrorRecord } from "../runtime/errors.ts";
import type { Exchange } from "./exchange.ts";
import type { StreamSink } from "./server/edge.ts";
import { drained, writePiece } from "./server/write-piece.ts";

export interface StreamCodec {
  /**
   * The text of one batch of events, "" if there is nothing to send yet. Long text comes in pieces, which are all consumed
   * before the next batch.
   */
  encode(events: readonly GenerateEvent[]): string | Iterable<string>;
  /** The text that ends a stream that failed after its start. */
  fail(error: ErrorRecord): string | Iterable<string>;
  /** True once the text that ends the stream has been returned. */
  readonly isEnded: boolean;
  /** Sent while the stream is idle; default: a comment. */
  readonly keepAlive?: string;
}

export interface StreamLimits {
  readonly keepAliveMs: number;
  readonly readerStallMs: number;
}

/**
 * Answers with a stream. Nothing is sent before the first event, so that a request refused by the engine still gets its
 * status (thrown here). After `keepAliveMs` without an event the stream begins with a comment.
 */
export async function streamEvents(
  exchange: Exchange,
  events: AsyncIterable<readonly GenerateEvent[]>,
  codec: StreamCodec,
  limits: StreamLimits,
): Promise<void> {
  const writer = new SseWriter(exchange, codec, limits);
  try {
    for await (const batch of events) {
      const first = batch[0];
      if (!writer.hasBegun && first?.type === "error") throw fromErrorRecord(first.error);
      const text = codec.encode(batch);
      if (typeof text !== "string") await writer.writePieces(text);
      else if (!writer.write(text)) await writer.drained();
      if (exchange.request.signal.aborted || codec.isEnded) break;
    }
    if (!codec.isEnded && !exchange.request.signal.aborted) {
      throw new ServerError("peer_gone", "the generation ended before it was done; send the request again");
    }
    // A stream that ends without any text is an answer, too.
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

class SseWriter {
  readonly #exchange: Exchange;
  readonly #codec: StreamCodec;
  readonly #limits: StreamLimits;
  readonly #timer: NodeJS.Timeout | undefined;
  #sink: StreamSink | null = null;
  /** Waits for the reader, or is in the middle of an event. */
  #isBusy = false;

  constructor(exchange: Exchange, codec: StreamCodec, limits: StreamLimits) {
    this.#exchange = exchange;
    this.#codec = codec;
    this.#limits = limits;
    if (limits.keepAliveMs > 0) this.#timer = setTimeout(() => this.#keepAlive(), limits.keepAliveMs);
  }

  get hasBegun(): boolean {
    return this.#sink !== null;
  }

  begin(): StreamSink {
    this.#sink ??= this.#exchange.openEventStream();
    return this.#sink;
  }

  /** False: the next write must wait for `drained`. */
  write(text: string): boolean {
    if (text === "") return true;
    const sink = this.begin();
    this.#timer?.refresh();
    return sink.write(text);
  }

  /** Waits for the reader. A reader that stays stalled is disconnected, which aborts the request's signal. */
  async drained(): Promise<void> {
    const sink = this.#sink;
    if (sink === null) return;
    this.#isBusy = true;
    await drained(sink, this.#limits.readerStallMs);
    this.#isBusy = false;
    this.#timer?.refresh();
  }

  /** Writes pieces at the reader's pace. An error disconnects the reader: an event may have been half written. */
  async writePieces(pieces: Iterable<string>): Promise<void> {
    const { signal } = this.#exchange.request;
    const sink = this.begin();
    this.#isBusy = true;
    try {
      for (const piece of pieces) {
        await writePiece(sink, piece, this.#limits.readerStallMs);
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
