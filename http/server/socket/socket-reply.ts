// Reply to one message of a WebSocket connection. The route replies as it does over HTTP; its event stream becomes messages, and
// an error body becomes an error message.
import { UNKNOWN_FIELDS_HEADER } from "../../shared/unknown-fields.ts";
import type { EdgeReply } from "../body-intake.ts";
import type { ReplyHeaders, StreamSink } from "../edge.ts";
import type { InFlight } from "../in-flight.ts";
import type { Frame, SocketConnection } from "./connection.ts";
import { EventFrames } from "./event-frames.ts";

export class SocketReply implements EdgeReply, StreamSink {
  closesConnection = false;
  onDone: () => void = () => {};
  readonly #connection: SocketConnection;
  readonly #inFlight: InFlight;
  /** Called once, when the reply is complete. It is not called if the connection closes before. */
  readonly #onEnd: () => void;
  readonly #aborter = new AbortController();
  readonly #frames = new EventFrames();
  #isDone = false;
  /** Unknown fields of the request that the first event must still report; null if there are none or the event was sent. */
  #ignored: string | null = null;

  constructor(connection: SocketConnection, inFlight: InFlight, onEnd: () => void) {
    this.#connection = connection;
    this.#inFlight = inFlight;
    this.#onEnd = onEnd;
    inFlight.add(this);
  }

  get signal(): AbortSignal {
    return this.#aborter.signal;
  }

  /** Whether the last event was sent. The client may already reply to it before the route has ended the stream. */
  get isLastSent(): boolean {
    return this.#frames.isDone;
  }

  send(status: number, _headers: ReplyHeaders, body: string | Uint8Array): void {
    if (this.#isDone) return;
    const text = errorMessage(status, textOf(body));
    // If the client reads too slowly, the connection is destroyed. Otherwise, replies would fill the memory when a client sends
    // messages but reads no replies.
    if (this.#connection.send([{ text, part: "whole" }])) this.end();
    else this.abort();
  }

  stream(_status: number, headers: ReplyHeaders): StreamSink {
    this.#ignored = headers[UNKNOWN_FIELDS_HEADER] ?? null;
    return this;
  }

  write(piece: string | Uint8Array): boolean {
    if (this.#isDone) return true;
    const frames = this.#withIgnored(this.#frames.push(textOf(piece)));
    return frames.length === 0 || this.#connection.send(frames);
  }

  /** Adds the unknown fields of the request to the first event of the reply, because a message has no headers. */
  #withIgnored(frames: readonly Frame[]): readonly Frame[] {
    const [first, ...others] = frames;
    if (this.#ignored === null || first === undefined) return frames;
    const text = `{"${UNKNOWN_FIELDS_HEADER}":${JSON.stringify(this.#ignored)},${first.text.slice(1)}`;
    this.#ignored = null;
    return [{ ...first, text }, ...others];
  }

  /** Does nothing, because the session keeps the connection open. */
  keepOpen(): void {}

  drained(): Promise<void> {
    return this.#connection.drained();
  }

  end(): void {
    if (this.#isDone) return;
    this.#finish();
    this.#onEnd();
  }

  abort(): void {
    this.#connection.destroy();
  }

  /** Called when the connection has closed. */
  connectionClosed(): void {
    if (this.#isDone) return;
    this.#finish();
    this.#aborter.abort();
  }

  #finish(): void {
    this.#isDone = true;
    this.#inFlight.delete(this);
    this.onDone();
  }
}

/** Builds an error message from the status and the JSON body of an error response. */
export function errorMessage(status: number, body: string): string {
  return `{"type":"error","status":${status},${body.slice(1)}`;
}

function textOf(piece: string | Uint8Array): string {
  return typeof piece === "string" ? piece : Buffer.from(piece).toString();
}
