// Event text: serialises the events of a response with their names and sequence numbers. Hot path: the deltas of one content
// part differ only in sequence number and text, so the rest of their JSON is built once.
import { arrayFragments, gathered, jsonPieces, PIECE_LENGTH } from "../../shared/answer/json-pieces.ts";
import { jsonLength } from "../../shared/answer/logprobs.ts";
import { type EventChunk, LongEvent, TextChunk } from "./event-chunks.ts";
import type { HeldLogprobs } from "./held-logprobs.ts";

/** Text that ends a stream, sent after the last event. */
export const DONE = "data: [DONE]\n\n";

/** Receives the stream events of a response in order. */
export interface ResponseEvents {
  /** Whether events are sent to a client. Events cannot be withdrawn after they are sent. */
  readonly areSent: boolean;
  /**
   * Adds an event. `length`: estimated number of characters of `fields` as JSON; 0 if they are short enough for JSON.stringify.
   * Long fields must not change after the call.
   */
  event(type: string, fields: object, length?: number): void;
  /**
   * Adds an event that contains the response as JSON. `length`: estimated number of characters of the response; 0 for a short
   * one.
   */
  lifecycle(type: string, response: string | (() => Iterable<string>), length: number): void;
  /** Returns the constant text at the beginning of every delta of one content part. Pass it to `delta` as `head`. */
  deltaHead(type: string, fields: object): string;
  delta(head: string, text: string, logprobs?: HeldLogprobs): void;
}

/** Discards all events. Used for responses that are not streamed. */
export const noEvents: ResponseEvents = {
  areSent: false,
  event() {},
  lifecycle() {},
  deltaHead: () => "",
  delta() {},
};

export class EventText implements ResponseEvents {
  readonly areSent = true;
  #nextSequence = 0;
  /** Chunks of the events that precede the events in #text. The last chunk is a long event. */
  #chunks: EventChunk[] = [];
  /** Sequence number of the first event in #text. */
  #first = 0;
  #text = "";

  event(type: string, fields: object, length = 0): void {
    const data = { type, sequence_number: this.#nextSequence, ...fields };
    if (length === 0) this.#add(`event: ${type}\ndata: ${JSON.stringify(data)}\n\n`);
    else this.#addPieces(length, () => surrounded(`event: ${type}\ndata: `, jsonPieces(data), "\n\n"));
  }

  lifecycle(type: string, response: string | (() => Iterable<string>), length: number): void {
    const head = `event: ${type}\ndata: {"type":"${type}","sequence_number":${this.#nextSequence},"response":`;
    if (typeof response === "string") this.#add(`${head}${response}}\n\n`);
    else this.#addPieces(length, () => surrounded(head, response(), "}\n\n"));
  }

  deltaHead(type: string, fields: object): string {
    const common = JSON.stringify({ type, ...fields });
    return `event: ${type}\ndata: ${common.slice(0, -1)},"sequence_number":`;
  }

  delta(head: string, text: string, logprobs?: HeldLogprobs): void {
    const said = `${head}${this.#nextSequence},"delta":${JSON.stringify(text)}`;
    if (logprobs === undefined) {
      this.#add(`${said}}\n\n`);
      return;
    }
    const { records, tokens } = logprobs;
    const length = jsonLength(records);
    if (length <= PIECE_LENGTH) {
      this.#add(`${said},"logprobs":${tokens.list(records)}}\n\n`);
      return;
    }
    const list = () => arrayFragments(tokens.each([records.floats]));
    this.#addLong(length, () => surrounded(`${said},"logprobs":`, list(), "}\n\n"));
  }

  /** Returns the events added since the last call. */
  take(): readonly EventChunk[] {
    const chunks = [...this.#chunks, this.#takeText()];
    this.#chunks = [];
    return chunks;
  }

  /** Returns a chunk of the short events in #text, which were added after the last long event and after the last call. */
  #takeText(): TextChunk {
    const chunk = new TextChunk(this.#first, this.#text);
    this.#first = this.#nextSequence;
    this.#text = "";
    return chunk;
  }

  /** Adds the text of the next event. */
  #add(text: string): void {
    this.#nextSequence++;
    this.#text += text;
  }

  /** Adds the next event, as text if it is short, else as a LongEvent. */
  #addPieces(length: number, pieces: () => Iterable<string>): void {
    if (length <= PIECE_LENGTH) this.#add([...pieces()].join(""));
    else this.#addLong(length, pieces);
  }

  #addLong(length: number, pieces: () => Iterable<string>): void {
    this.#chunks.push(this.#takeText(), new LongEvent(this.#nextSequence++, length, pieces));
    this.#first = this.#nextSequence;
  }
}

function surrounded(before: string, fragments: Iterable<string>, after: string): Iterable<string> {
  return gathered(
    (function* () {
      yield before;
      yield* fragments;
      yield after;
    })(),
  );
}
