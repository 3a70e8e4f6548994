// Response events: collects the events of a response as objects, with their sequence numbers.
import type { ResponseEvents } from "../http/responses/fold/event-text.ts";
import type { HeldLogprobs } from "../http/responses/fold/held-logprobs.ts";
import type { ResponseEvent } from "./messages.ts";

export class EventObjects implements ResponseEvents {
  readonly areSent = true;
  #next = 0;
  #events: ResponseEvent[] = [];

  event(type: string, fields: object): void {
    this.#events.push({ name: type, data: { type, sequence_number: this.#next++, ...fields } });
  }

  lifecycle(type: string, response: string | (() => Iterable<string>)): void {
    const text = typeof response === "string" ? response : [...response()].join("");
    this.event(type, { response: JSON.parse(text) });
  }

  deltaHead(type: string, fields: object): string {
    return JSON.stringify({ type, ...fields });
  }

  delta(head: string, text: string, logprobs?: HeldLogprobs): void {
    const { type, ...fields } = JSON.parse(head) as { readonly type: string };
    const list = logprobs === undefined ? {} : { logprobs: JSON.parse(logprobs.tokens.list(logprobs.records)) };
    this.event(type, { ...fields, delta: text, ...list });
  }

  /** Returns the events since the last call. They are copies, because the fold may change its objects later. */
  take(): readonly ResponseEvent[] {
    const events = this.#events;
    this.#events = [];
    return events;
  }
}
