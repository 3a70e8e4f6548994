// Response run: one response while it is generated: its fold, its events, and when what of it is stored. Made by responses.ts.
// Driven by the pump of a client's stream, or by itself where no client waits.
import {
  type ItemTexts,
  maxStoredBytes,
  type ResponseUpdate,
  type StoredResponse,
} from "../../actors/api/stored-responses.ts";
import type { GenerateEvent } from "../../engines/generation.ts";
import type { ShownTokens } from "../../engines/text/tokenizer/token-texts.ts";
import type { ErrorRecord } from "../../runtime/errors.ts";
import type { AnswerLease } from "../shared/answer/answer-memory.ts";
import { PIECE_LENGTH, utf8Of } from "../shared/answer/json-pieces.ts";
import type { StreamCodec } from "../sse.ts";
import { type EventChunk, textOf } from "./fold/event-chunks.ts";
import { DONE, EventText, noEvents } from "./fold/event-text.ts";
import { ResponseFold } from "./fold/fold.ts";
import {
  bodyPieces,
  interruptedState,
  notKeptState,
  outputLength,
  type ResponseHead,
  type ResponseState,
  type ResponseStatus,
  withoutLogprobs,
} from "./fold/resource.ts";
import { itemTexts } from "./request/item-texts.ts";
import { EventLog } from "./stored/event-log.ts";
import type { ResponseSaver, SavedResponse } from "./stored/response-saver.ts";

const alreadyLogged = (): void => {};
const deletedError: ErrorRecord = { code: "cancelled", message: "the response was deleted while it was generated" };

export interface ResponsePlan {
  readonly head: ResponseHead;
  /** A name for the client. */
  readonly client: string;
  readonly previousId: string | null;
  /** What the request adds to the conversation. */
  readonly input: ItemTexts;
  readonly isStored: boolean;
  readonly isBackground: boolean;
  readonly isStreamed: boolean;
  readonly tokenTexts: (model: string) => ShownTokens;
  /** On the memory of its logprobs. The run releases it when it has ended and is kept. */
  readonly lease: AnswerLease;
}

export interface RunOwner {
  readonly saver: ResponseSaver;
  /** The run has ended, and what was to be kept of it is on its way. */
  ended(run: ResponseRun): void;
}

export class ResponseRun implements StreamCodec, SavedResponse {
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

  get status(): ResponseStatus {
    return this.#fold.status;
  }

  /** The response is long: so is what is kept of it. */
  get isLong(): boolean {
    return this.#fold.length > PIECE_LENGTH;
  }

  get client(): string {
    return this.#plan.client;
  }

  /** Its request, its answer and its events; logprobs are counted by its lease. */
  get heldBytes(): number {
    const { head, input } = this.#plan;
    return head.settings.length + input.texts.byteLength + outputLength(this.#fold.output) + (this.log?.length ?? 0);
  }

  /** The response as it is now: JSON. */
  json(): Iterable<string> {
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
    const text = this.#takeEvents(isEnd ? DONE : "");
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
    return text;
  }

  /** The text of the events since the last call, which are in the log from then on, and then `end`. */
  #takeEvents(end = ""): string | Iterable<string> {
    if (this.#text === null) return "";
    const chunks = this.#text.take();
    for (const chunk of chunks) this.log?.append(chunk);
    return textOf(chunks, -1, end);
  }

  get #isToBeKept(): boolean {
    return this.#plan.isStored && !this.#isForgotten;
  }

  async #add(): Promise<void> {
    if (!this.#isToBeKept) return;
    const { state } = this.#fold;
    const body = this.#bodyNow(state);
    const interrupted = this.#bodyNow(interruptedState(state));
    const running = { isRunning: true, status: state.status, body, interrupted };
    // What is not whole yet is nothing to go on from.
    const record = this.added({ id: this.id, ...running, output: itemTexts([]), events: null });
    const adding = this.#owner.saver.add(record);
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
    const ending = this.#owner.saver.end(this, this.#wasAdded ?? Promise.resolve(false));
    void ending.then(() => lease.release());
  }

  /** What is kept of its end: the whole of it first, then less. Nothing changes any more: made as late as it is needed. */
  *ends(): Iterable<Promise<ResponseUpdate>> {
    const { state } = this.#fold;
    const events = this.log?.kept() ?? null;
    if (events !== null) yield this.#end(state, events);
    yield this.#end(state, null);
    yield this.#end(notKeptState(state, "tooLarge"), null);
  }

  shortEnd(): Promise<ResponseUpdate> {
    return this.#end(notKeptState(this.#fold.state, "tooManyWait"), null);
  }

  /** All of what is kept, with what never changes. */
  added(update: ResponseUpdate): StoredResponse {
    const { client, previousId, isBackground, input, head } = this.#plan;
    return { ...update, client, previousId, isBackground, input, settings: head.settings };
  }

  /** Throws invalid_value where it is too large to be kept. */
  async #end(state: ResponseState, events: readonly EventChunk[] | null): Promise<ResponseUpdate> {
    return {
      id: this.id,
      isRunning: false,
      status: state.status,
      body: await utf8Of(bodyPieces(this.#plan.head, state), maxStoredBytes),
      interrupted: null,
      output: itemTexts(withoutLogprobs(state.output)),
      events:
        events === null ? null : { first: events[0]?.first ?? 0, text: await utf8Of(piecesOf(events), maxStoredBytes) },
    };
  }

  #bodyNow(state: ResponseState): Uint8Array {
    return Buffer.from([...bodyPieces(this.#plan.head, state)].join(""));
  }
}

function* piecesOf(chunks: readonly EventChunk[]): Generator<string> {
  const text = textOf(chunks);
  if (typeof text === "string") yield text;
  else yield* text;
}
