// Owns one response while it is generated: the fold, its events, and what is kept of it when. Made by responses.ts; driven by
// whoever reads the generation: the pump of a client's stream, or the run itself where nobody waits.
import type { ItemTexts, KeptEvents, ResponseUpdate, StoredResponse } from "../../actors/stored-responses.ts";
import type { GenerateEvent } from "../../engines/chat.ts";
import type { ErrorRecord } from "../../runtime/errors.ts";
import type { StreamCodec } from "../sse.ts";
import { EventLog } from "./event-log.ts";
import { DONE, EventText, noEvents } from "./event-text.ts";
import { ResponseFold } from "./fold.ts";
import { itemTexts } from "./item-texts.ts";
import {
  bodyText,
  interruptedState,
  type ResponseHead,
  type ResponseState,
  type ResponseStatus,
  responseText,
  tooLargeState,
} from "./resource.ts";
import type { ResponseSaver, SavedResponse } from "./response-saver.ts";

const noText = { first: 0, text: "" };
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
    this.log = plan.isStreamed && plan.isBackground ? new EventLog() : null;
    this.#fold = new ResponseFold(plan.head, this.#text ?? noEvents, plan.isBackground ? "queued" : "in_progress");
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

  /** The response as it is now: JSON. */
  text(): string {
    return responseText(this.#plan.head, this.#fold.state);
  }

  /** Takes events; the text is what they come to in the stream. */
  encode(events: readonly GenerateEvent[]): string {
    for (const event of events) this.#fold.take(event);
    return this.#step();
  }

  fail(error: ErrorRecord): string {
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
    const { first, text } = this.#text?.take() ?? noText;
    this.log?.append(first, text);
    await this.#add();
  }

  /** What follows from each change: for the log, for the store, and at the end. */
  #step(): string {
    const isEnd = this.isEnded && !this.#hasEnded;
    const { first, text } = this.#text?.take() ?? noText;
    this.log?.append(first, text);
    if (isEnd) {
      this.#hasEnded = true;
      this.log?.close();
    }
    // What its client is told the id of is found under it from then on, whatever becomes of this process. Being sent before
    // the text is, it is kept before anybody can ask for it.
    if (isEnd) this.#keepEnd();
    else if (!this.isEnded && this.#plan.isStreamed && this.#wasAdded === null) this.#add().catch(alreadyLogged);
    if (isEnd) this.#owner.ended(this);
    return isEnd && this.#text !== null ? text + DONE : text;
  }

  get #isToBeKept(): boolean {
    return this.#plan.isStored && !this.#isForgotten;
  }

  async #add(): Promise<void> {
    if (!this.#isToBeKept) return;
    const adding = this.#owner.saver.add(this.added(this.#update(this.#fold.state, null)));
    this.#wasAdded = adding.then(
      () => true,
      () => false,
    );
    await adding;
  }

  #keepEnd(): void {
    if (!this.#isToBeKept) return;
    void this.#owner.saver.end(this, this.#wasAdded ?? Promise.resolve(false));
  }

  /** What is kept of its end: the whole of it first, then less. Nothing changes any more: made as late as it is needed. */
  *ends(): Iterable<ResponseUpdate> {
    const { state } = this.#fold;
    const events = this.log?.kept() ?? null;
    yield this.#update(state, events);
    if (events !== null) yield this.#update(state, null);
    yield this.#update(tooLargeState(state), null);
  }

  /** All of what is kept, with what never changes. */
  added(update: ResponseUpdate): StoredResponse {
    const { client, previousId, isBackground, input, head } = this.#plan;
    return { ...update, client, previousId, isBackground, input, settings: Buffer.from(head.settings) };
  }

  #update(state: ResponseState, events: KeptEvents | null): ResponseUpdate {
    const { head } = this.#plan;
    const isRunning = !this.isEnded;
    return {
      id: this.id,
      isRunning,
      status: state.status,
      body: Buffer.from(bodyText(head, state)),
      interrupted: isRunning ? Buffer.from(bodyText(head, interruptedState(state))) : null,
      // What is not whole yet is nothing to go on from.
      output: itemTexts(isRunning ? [] : state.output),
      events,
    };
  }
}
