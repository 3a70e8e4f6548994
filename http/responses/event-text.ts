// Owns how the events of a response are written: names, sequence numbers, server-sent events. Hot path: of the many deltas of
// one part all but number and text is built once.
import type { WireTokenLogprob } from "../logprobs.ts";

/** What ends a stream after its last event. */
export const DONE = "data: [DONE]\n\n";

/** Events as they are sent, from number `first` on. */
export interface Chunk {
  readonly first: number;
  readonly text: string;
}

/** Takes the events of a response in their order. */
export interface ResponseEvents {
  /** What has been said is not to be taken back: somebody reads it. */
  readonly areSent: boolean;
  event(type: string, fields: object): void;
  /** An event with the response itself, as JSON. */
  lifecycle(type: string, response: string): void;
  /** What the deltas of one part have in common, to be given to `delta`. */
  deltaHead(type: string, fields: object): string;
  delta(head: string, text: string, logprobs?: readonly WireTokenLogprob[]): void;
}

/** Where nobody reads events. */
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
  /** Number of the first event in #text. */
  #first = 0;
  #text = "";

  event(type: string, fields: object): void {
    const data = JSON.stringify({ type, sequence_number: this.#nextSequence++, ...fields });
    this.#text += `event: ${type}\ndata: ${data}\n\n`;
  }

  lifecycle(type: string, response: string): void {
    const data = `{"type":"${type}","sequence_number":${this.#nextSequence++},"response":${response}}`;
    this.#text += `event: ${type}\ndata: ${data}\n\n`;
  }

  deltaHead(type: string, fields: object): string {
    const common = JSON.stringify({ type, ...fields });
    return `event: ${type}\ndata: ${common.slice(0, -1)},"sequence_number":`;
  }

  delta(head: string, text: string, logprobs?: readonly WireTokenLogprob[]): void {
    const more = logprobs === undefined ? "" : `,"logprobs":${JSON.stringify(logprobs)}`;
    this.#text += `${head}${this.#nextSequence++},"delta":${JSON.stringify(text)}${more}}\n\n`;
  }

  /** What has been written since the last call, and the number of its first event. */
  take(): Chunk {
    const taken = { first: this.#first, text: this.#text };
    this.#first = this.#nextSequence;
    this.#text = "";
    return taken;
  }
}
