// Event buffer: holds events that cannot be sent yet, and joins consecutive pieces of the same text. Used while a stream is full,
// and for the events of candidates that are not ranked yet.
import type { GenerateEvent } from "../../../engines/generation.ts";
import { LogprobList } from "../../../engines/logprobs.ts";

/** An event of one choice. */
export type ChoiceEvent = Extract<GenerateEvent, { readonly choice: number }>;

type Piece = Extract<GenerateEvent, { readonly type: "text" | "reasoning" | "tool_arguments" }>;

/** A piece of text and the later pieces that are joined to it. */
interface Growing<E> {
  readonly first: Piece & E;
  text: string;
  readonly logprobs: LogprobList;
}

type Entry<E> = Growing<E> | { readonly whole: E };

export class EventBuffer<E extends GenerateEvent = GenerateEvent> {
  #entries: Entry<E>[] = [];
  /** Last entry of each choice, by index of the choice. */
  readonly #lasts = new Map<number, Entry<E>>();

  get isEmpty(): boolean {
    return this.#entries.length === 0;
  }

  /** Adds an event. A piece of text is joined to the last event of its choice if that is text of the same kind. */
  add(event: E): void {
    const last = "choice" in event ? this.#lasts.get(event.choice) : undefined;
    if (last !== undefined && "first" in last && joins(last.first, event)) {
      last.text += event.text;
      if (event.type === "text" && event.logprobs) last.logprobs.add(event.logprobs);
      return;
    }
    const entry = entryOf(event);
    this.#entries.push(entry);
    if ("choice" in event) this.#lasts.set(event.choice, entry);
  }

  /** Empties the buffer. Returns its events in order. */
  take(): E[] {
    const events = this.#entries.map(eventOf);
    this.#entries = [];
    this.#lasts.clear();
    return events;
  }
}

function joins(first: Piece, event: GenerateEvent): event is Piece {
  return event.type === first.type && isPiece(event);
}

function isPiece<E extends GenerateEvent>(event: E): event is E & Piece {
  return event.type === "text" || event.type === "reasoning" || event.type === "tool_arguments";
}

function entryOf<E extends GenerateEvent>(event: E): Entry<E> {
  if (!isPiece(event)) return { whole: event };
  const logprobs = new LogprobList();
  if (event.type === "text" && event.logprobs) logprobs.add(event.logprobs);
  return { first: event, text: event.text, logprobs };
}

function eventOf<E extends GenerateEvent>(entry: Entry<E>): E {
  if ("whole" in entry) return entry.whole;
  const { first, text, logprobs } = entry;
  if (first.type !== "text" || logprobs.count === 0) return { ...first, text };
  return { ...first, text, logprobs: logprobs.records() };
}
