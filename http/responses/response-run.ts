// Owns one response while it is generated: the fold, its events, and what is kept of it when. Made by responses.ts; driven by
// whoever reads the generation: the pump of a client's stream, or the run itself where nobody waits.
import {
  type KeptEvents,
  maxStoredBytes,
  type StoredResponse,
  type StoredText,
} from "../../actors/stored-responses.ts";
import type { GenerateEvent } from "../../engines/chat.ts";
import type { TokenTexts } from "../../engines/tokenizer/token-texts.ts";
import type { ErrorRecord } from "../../runtime/errors.ts";
import type { AnswerLease } from "../answer-memory.ts";
import { PIECE_LENGTH, utf8Of } from "../json-pieces.ts";
import type { StreamCodec } from "../sse.ts";
import { type EventChunk, joinedTexts } from "./event-chunks.ts";
import { EventLog } from "./event-log.ts";
import { DONE, EventText, noEvents } from "./event-text.ts";
import { ResponseFold } from "./fold.ts";
import type { InputItem } from "./input-items.ts";
import { type ResponseHead, tooLargeResource, withoutLogprobs } from "./resource.ts";
import type { ResponseSaver } from "./response-saver.ts";

const alreadyLogged = (): void => {};
const deletedError: ErrorRecord = { code: "cancelled", message: "the response was deleted while it was generated" };

export interface ResponsePlan {
  readonly head: ResponseHead;
  readonly previousId: string | null;
  /** What the request adds to the conversation. */
  readonly input: readonly InputItem[];
  readonly isStored: boolean;
  readonly isBackground: boolean;
  readonly isStreamed: boolean;
  readonly tokenTexts: (model: string) => TokenTexts;
  /** On the memory of its logprobs. The run releases it when it has ended and is kept. */
  readonly lease: AnswerLease;
}

export interface RunOwner {
  readonly saver: ResponseSaver;
  /** The run has ended, and what was to be kept of it is on its way. */
  ended(run: ResponseRun): void;
}

export class ResponseRun implements StreamCodec {
  readonly id: string;
  readonly isBackground: boolean;
  /** Of one whose stream may be read again and again. */
  readonly log: EventLog | null;
  readonly #plan: ResponsePlan;
  readonly #owner: RunOwner;
  readonly #text: EventText | null;
  readonly #fold: ResponseFold;
  readonly #stop = new AbortController();
  /** Whether it was kept while it ran; null where that was not tried. */
  #wasAdded: Promise<boolean> | null = null;
  #hasEnded = false;
  #isForgotten = false;

  constructor(plan: ResponsePlan, owner: RunOwner) {
    this.#plan = plan;
    this.#owner = owner;
    this.id = plan.head.id;
    this.isBackground = plan.isBackground;
    this.#text = plan.isStreamed ? new EventText() : null;
    this.log = plan.isStreamed && plan.isBackground ? new EventLog(undefined, plan.lease) : null;
    const events = this.#text ?? noEvents;
    this.#fold = new ResponseFold({ ...plan, events, status: plan.isBackground ? "queued" : "in_progress" });
  }

  /** Fires when nothing more is to be generated. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  get isEnded(): boolean {
    return this.#fold.isEnded;
  }

  /** The resource as it is now, as JSON. */
  json(): string | Iterable<string> {
    return this.#fold.json();
  }

  /** Takes events; the text is what they come to in the stream. Throws queue_full where there is too much to hold. */
  encode(events: readonly GenerateEvent[]): string | Iterable<string> {
    for (const event of events) this.#fold.take(event);
    return this.#step();
  }

  fail(error: ErrorRecord): string | Iterable<string> {
    this.#fold.fail(this.#isForgotten ? deletedError : error);
    return this.#step();
  }

  /** Ends it before its time: the engine stops before its next step. */
  interrupt(status: "incomplete" | "cancelled"): void {
    if (this.isEnded) return;
    this.#fold.interrupt(status);
    this.#step();
    this.#stop.abort();
  }

  /** It is deleted: from now on nothing of it is kept, and nothing more generated. */
  forget(): void {
    this.#isForgotten = true;
    if (this.isBackground) this.interrupt("cancelled");
    else this.#stop.abort();
  }

  /** Nobody reads it any more. Of what no client has seen the id of, nothing is kept. */
  abandon(): void {
    if (this.isEnded) return;
    if (this.#wasAdded === null) this.#isForgotten = true;
    this.interrupt("incomplete");
  }

  /** Keeps one that is to run in the background, so that it is found at once. Throws why it cannot be kept. */
  async queue(): Promise<void> {
    this.#takeEvents();
    await this.#add();
  }

  /** What follows from each change: for the log, for the store, and at the end. */
  #step(): string | Iterable<string> {
    const isEnd = this.isEnded && !this.#hasEnded;
    const text = this.#takeEvents();
    if (isEnd) {
      this.#hasEnded = true;
      this.log?.close();
    }
    // What its client is told the id of is found under it from then on, whatever becomes of this process. Being sent before
    // the text is, it is kept before anybody can ask for it.
    if (isEnd) this.#keepEnd();
    else if (!this.isEnded && this.#plan.isStreamed && this.#wasAdded === null) this.#add().catch(alreadyLogged);
    if (isEnd) {
      this.#plan.lease.release();
      this.#owner.ended(this);
    }
    return isEnd && this.#text !== null ? joinedTexts([text, DONE]) : text;
  }

  /** The text of the events since the last call, which are in the log from then on. */
  #takeEvents(): string | Iterable<string> {
    const events = this.#text;
    if (events === null) return "";
    if (!events.hasLong) {
      const chunk = events.takeText();
      this.log?.append(chunk);
      return chunk.text;
    }
    const chunks = events.take();
    for (const chunk of chunks) this.log?.append(chunk);
    return textOf(chunks);
  }

  get #isToBeKept(): boolean {
    return this.#plan.isStored && !this.#isForgotten;
  }

  async #add(): Promise<void> {
    if (!this.#isToBeKept) return;
    const adding = this.#owner.saver.add(this.#record(wholeText(this.#fold.json()), "[]", null));
    this.#wasAdded = adding.then(
      () => true,
      () => false,
    );
    await adding;
  }

  #keepEnd(): void {
    if (!this.#isToBeKept) return;
    const { lease } = this.#plan;
    lease.retain();
    const end = { isLong: this.#fold.length > PIECE_LENGTH, records: () => this.#endRecords() };
    const ending = this.#owner.saver.end(this.id, end, this.#wasAdded ?? Promise.resolve(false));
    void ending.then(() => lease.release());
  }

  /** Nothing changes any more: they may be made as late as they are needed. */
  *#endRecords(): Iterable<Promise<StoredResponse>> {
    const body = storedText(this.#fold.json());
    if (this.log !== null) yield this.#endRecord(body, this.log.kept());
    yield this.#endRecord(body, null);
    const tooLarge = JSON.stringify(tooLargeResource(this.#fold.resource()));
    yield Promise.resolve(this.#record(tooLarge, "[]", null));
  }

  /** Throws invalid_value where it is too large to be kept. */
  async #endRecord(body: Promise<StoredText>, chunks: readonly EventChunk[] | null): Promise<StoredResponse> {
    const output = JSON.stringify(withoutLogprobs(this.#fold.output));
    return this.#record(await body, output, chunks === null ? null : await keptEvents(chunks));
  }

  /** What came is written down anew each time: kept as text besides, it would double what a long run holds. */
  #record(body: StoredText, output: string, events: KeptEvents | null): StoredResponse {
    const { previousId, input } = this.#plan;
    return {
      id: this.id,
      previousId,
      isRunning: !this.isEnded,
      body,
      items: joinedLists(JSON.stringify(input), output),
      inputCount: input.length,
      events,
    };
  }
}

/** Of a response that has just begun, and is not long. */
function wholeText(text: string | Iterable<string>): string {
  return typeof text === "string" ? text : [...text].join("");
}

async function keptEvents(chunks: readonly EventChunk[]): Promise<KeptEvents> {
  return { first: chunks[0]?.first ?? 0, text: await storedText(textOf(chunks)) };
}

function textOf(chunks: readonly EventChunk[]): string | Iterable<string> {
  return joinedTexts(chunks.map((chunk) => chunk.after(-1)));
}

async function storedText(text: string | Iterable<string>): Promise<StoredText> {
  return typeof text === "string" ? text : await utf8Of(text, maxStoredBytes);
}

function joinedLists(first: string, second: string): string {
  if (first === "[]") return second;
  return second === "[]" ? first : `${first.slice(0, -1)},${second.slice(1)}`;
}
