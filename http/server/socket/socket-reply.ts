// Reply to one message of a WebSocket connection. The route handler replies as over HTTP; the events of its stream become
// messages, and an error body becomes an error message.
import { UNKNOWN_FIELDS_HEADER } from "../../shared/unknown-fields.ts";
import type { EdgeReply } from "../body-intake.ts";
import type { ReplyHeaders, StreamSink } from "../edge.ts";
import type { InFlight } from "../in-flight.ts";
import type { Frame, SocketConnection } from "./connection.ts";
import { EventFrames } from "./event-frames.ts";

/** Maximum number of other messages that wait for the end of an event. */
const MAX_WAITING = 16;

export class SocketReply implements EdgeReply, StreamSink {
  closesConnection = false;
  onDone: () => void = () => {};
  readonly #connection: SocketConnection;
  readonly #inFlight: InFlight;
  /** Called once, when the reply is complete. Not called if the connection closes earlier. */
  readonly #onEnd: () => void;
  readonly #aborter = new AbortController();
  readonly #frames = new EventFrames();
  /** Messages that are not part of the reply. They wait for the last frame of an event. */
  readonly #waiting: Frame[] = [];
  #isDone = false;
  /** Unknown fields of the request, to be added to the first event; null if there are none, or after the first event. */
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

  /** Whether the last event was sent. The client may react to it before the route has ended the stream. */
  get isLastSent(): boolean {
    return this.#frames.isDone;
  }

  send(status: number, _headers: ReplyHeaders, body: string | Uint8Array): void {
    if (this.#isDone) return;
    const text = errorMessage(status, textOf(body));
    // A client that reads too slowly is disconnected. Otherwise, a client that sends messages but reads no replies would fill
    // the memory.
    if (this.#connection.send([{ text, part: "whole" }])) this.end();
    else this.abort();
  }

  stream(_status: number, headers: ReplyHeaders): StreamSink {
    this.#ignored = headers[UNKNOWN_FIELDS_HEADER] ?? null;
    return this;
  }

  write(piece: string | Uint8Array): boolean {
    if (this.#isDone) return true;
    const frames = this.#withWaiting(this.#withIgnored(this.#frames.push(textOf(piece))));
    return frames.length === 0 || this.#connection.send(frames);
  }

  /**
   * Sends a message that is not part of the reply. A message cannot begin within another one (RFC 6455, 5.4), so it waits until
   * the event in progress is sent. Returns false if the client reads too slowly, or sends too many messages meanwhile.
   */
  sendBetween(text: string): boolean {
    const frame: Frame = { text, part: "whole" };
    if (!this.#frames.isOpen) return this.#connection.send([frame]);
    return this.#waiting.push(frame) <= MAX_WAITING;
  }

  /** Adds the waiting messages after the last frame of the event for which they wait. */
  #withWaiting(frames: readonly Frame[]): readonly Frame[] {
    const end = frames.findIndex(({ part }) => part === "last") + 1;
    if (end === 0 || this.#waiting.length === 0) return frames;
    return [...frames.slice(0, end), ...this.#waiting.splice(0), ...frames.slice(end)];
  }

  /** Adds the request's unknown fields to the first event of the reply, because a WebSocket message has no headers. */
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
