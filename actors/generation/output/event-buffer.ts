// Owns a run's events where they cannot leave at once: pieces of the same text become one. Kept by runs whose reader is
// behind, and by candidates that wait for their rank.
import type { GenerateEvent } from "../../../engines/generation.ts";
import { LogprobList } from "../../../engines/logprobs.ts";

/** What happens to one choice. */
export type ChoiceEvent = Extract<GenerateEvent, { readonly choice: number }>;

type Piece = Extract<GenerateEvent, { readonly type: "text" | "reasoning" | "tool_arguments" }>;

/** A piece of text, and what has joined it. */
interface Growing {
  readonly first: Piece;
  text: string;
  readonly logprobs: LogprobList;
}

type Entry = Growing | { readonly whole: GenerateEvent };

export class EventBuffer {
  #entries: Entry[] = [];
  /** The last entry of each choice. */
  readonly #lasts = new Map<number, Entry>();

  get isEmpty(): boolean {
    return this.#entries.length === 0;
  }

  /** A piece joins the last event of its choice where that is a piece of the same. */
  add(event: GenerateEvent): void {
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

  /** What was added, in its order; nothing is left. */
  take(): GenerateEvent[] {
    const events = this.#entries.map(eventOf);
    this.#entries = [];
    this.#lasts.clear();
    return events;
  }
}

function joins(first: Piece, event: GenerateEvent): event is Piece {
  return event.type === first.type && isPiece(event);
}

function isPiece(event: GenerateEvent): event is Piece {
  return event.type === "text" || event.type === "reasoning" || event.type === "tool_arguments";
}

function entryOf(event: GenerateEvent): Entry {
  if (!isPiece(event)) return { whole: event };
  const logprobs = new LogprobList();
  if (event.type === "text" && event.logprobs) logprobs.add(event.logprobs);
  return { first: event, text: event.text, logprobs };
}

function eventOf(entry: Entry): GenerateEvent {
  if ("whole" in entry) return entry.whole;
  const { first, text, logprobs } = entry;
  if (first.type !== "text" || logprobs.count === 0) return { ...first, text };
  return { ...first, text, logprobs: logprobs.records() };
}
