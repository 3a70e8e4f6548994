// Response run: one response in progress, with its output, its stream events, and its writes to the store. `encode` is called
// by the loop that responds to the client or, for a background response, by Responses.pump. Created by responses.ts.

import type { AgentEvent } from "../../actors/api/agent/agents.ts";
import {
  type ItemTexts,
  maxStoredBytes,
  type ResponseUpdate,
  type RestartRecord,
  type StoredResponse,
} from "../../actors/api/stored-responses.ts";
import type { ShownTokens } from "../../engines/text/tokenizer/token-texts.ts";
import { ownBytes } from "../../runtime/bytes.ts";
import { resolvesWithin } from "../../runtime/clock.ts";
import { type ErrorRecord, fromErrorRecord } from "../../runtime/errors.ts";
import type { AnswerLease } from "../shared/answer/answer-memory.ts";
import { PIECE_LENGTH, utf8Of } from "../shared/answer/json-pieces.ts";
import type { StreamCodec } from "../sse.ts";
import { type EventChunk, piecesOf, textOf } from "./fold/event-chunks.ts";
import { DONE, EventText, noEvents } from "./fold/event-text.ts";
import { ResponseFold } from "./fold/fold.ts";
import {
  bodyPieces,
  interruptedState,
  notKeptState,
  outputLength,
  type ResponseHead,
  type ResponseState,
  withoutLogprobs,
} from "./fold/resource.ts";
import type { ResponseStatus } from "./fold/resource-schema.ts";
import { itemTexts } from "./request/item-texts.ts";
import { EventLog } from "./stored/event-log.ts";
import { MOST_HELD_MS, type ResponseSaver, type SavedResponse } from "./stored/response-saver.ts";
import { outputStart } from "./stored/text-start.ts";

const alreadyLogged = (): void => {};
const deletedError: ErrorRecord = { code: "cancelled", message: "the response was deleted while it was generated" };

export interface ResponsePlan {
  readonly head: ResponseHead;
  /** Digest that identifies the client; computed by clientOf. */
  readonly client: string;
  readonly previousId: string | null;
  /** Input items of this request. */
  readonly input: ItemTexts;
  /** Beginning of the user's last message; null if there is none. */
  readonly inputStart: string | null;
  readonly isStored: boolean;
  readonly isBackground: boolean;
  /** Record with which another server can generate the response; null: no other server may. */
  readonly restart: RestartRecord | null;
  readonly isStreamed: boolean;
  /** Whether events of the agent loop are sent in addition to the protocol's events. */
  readonly hasExtensions: boolean;
  readonly tokenTexts: (model: string) => ShownTokens;
  /** Called with the output items when a response ends without failure, before its last event is sent; null: no callback. */
  readonly onItems: ((output: ItemTexts) => void) | null;
  /** Lease that counts the memory of the logprobs. Released when the run has ended and its final state is stored. */
  readonly lease: AnswerLease;
}

export interface RunOwner {
  readonly saver: ResponseSaver;
  /**
   * Whether other replicas use the same store. A client may then use the response id on any replica as soon as it knows the id.
   */
  readonly isShared: boolean;
  /** Called when the run has ended. Its last write to the store may still be in progress. */
  ended(run: ResponseRun): void;
}

export class ResponseRun implements StreamCodec, SavedResponse {
  readonly id: string;
  readonly isBackground: boolean;
  /** Event log of a streamed background response, for clients that reconnect; null for all other responses. */
  readonly log: EventLog | null;
  readonly #plan: ResponsePlan;
  readonly #owner: RunOwner;
  readonly #text: EventText | null;
  readonly #fold: ResponseFold;
  readonly #stop = new AbortController();
  /** Whether the store accepted the response while it was running; null if the response was not sent to the store. */
  #wasAdded: Promise<boolean> | null = null;
  #hasEnded = false;
  #isForgotten = false;
  #isUnstarted: boolean;

  constructor(plan: ResponsePlan, owner: RunOwner) {
    this.#plan = plan;
    this.#owner = owner;
    this.id = plan.head.id;
    this.isBackground = plan.isBackground;
    this.#isUnstarted = plan.restart !== null;
    this.#text = plan.isStreamed ? new EventText() : null;
    this.log = plan.isStreamed && plan.isBackground ? new EventLog(undefined, plan.lease, () => this.held()) : null;
    const events = this.#text ?? noEvents;
    this.#fold = new ResponseFold({ ...plan, events, status: plan.isBackground ? "queued" : "in_progress" });
  }

  /** Aborted when the generation must stop. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  get isEnded(): boolean {
    return this.#fold.isEnded;
  }

  /** Whether the response has no output yet, so that another server may generate it if this server ends. */
  get isUnstarted(): boolean {
    return this.#isUnstarted && !this.isEnded;
  }

  /** Marks the response as started. Called before its first output. */
  start(): void {
    this.#isUnstarted = false;
  }

  /** Ends the run here because another server generates the response. Streams of the run on this server end with the error. */
  handOver(error: ErrorRecord): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#isForgotten = true;
    this.log?.break(fromErrorRecord(error));
    this.#stop.abort();
    this.#plan.lease.release();
    this.#owner.ended(this);
  }

  get isHandedOver(): boolean {
    return this.#hasEnded && !this.isEnded;
  }

  get status(): ResponseStatus {
    return this.#fold.status;
  }

  /** Beginning of the output text generated so far; null if there is none. */
  get outputStart(): string | null {
    return outputStart(this.#fold.output);
  }

  /** Whether the response is estimated to be longer than PIECE_LENGTH characters. */
  get isLong(): boolean {
    return this.#fold.length > PIECE_LENGTH;
  }

  get client(): string {
    return this.#plan.client;
  }

  /** Total bytes of the request, the output and the events. The logprobs are not included, because the lease counts them. */
  get heldBytes(): number {
    const { head, input } = this.#plan;
    return head.settings.length + input.texts.byteLength + outputLength(this.#fold.output) + (this.log?.length ?? 0);
  }

  /** Returns the current response as JSON. */
  json(): Iterable<string> {
    return this.#fold.json();
  }

  /**
   * Processes generation events and returns the resulting stream text. Throws queue_full if the logprobs exceed the memory
   * limit.
   */
  encode(events: readonly AgentEvent[]): string | Iterable<string> {
    for (const event of events) this.#fold.take(event);
    return this.#step();
  }

  /**
   * Returns a promise to wait for before text with the response id is sent; null if there is nothing to wait for. It resolves
   * when the response is in the store. From then on, the client can use the id on another replica, even after this process has
   * been killed. If the store is unavailable or slow, it resolves after MOST_HELD_MS.
   */
  held(): Promise<unknown> | null {
    const { saver } = this.#owner;
    if (!this.#isToBeKept || !saver.isPending(this.id)) return null;
    return resolvesWithin(MOST_HELD_MS, saver.settled(this.id));
  }

  fail(error: ErrorRecord): string | Iterable<string> {
    this.#fold.fail(this.#isForgotten ? deletedError : error);
    return this.#step();
  }

  /** Ends the response early. The generation stops before the next step of the engine. */
  interrupt(status: "incomplete" | "cancelled"): void {
    if (this.isEnded || this.#hasEnded) return;
    this.#fold.interrupt(status);
    this.#step();
    this.#stop.abort();
  }

  /** Stops the generation and stores nothing more. Called when the response is deleted. */
  forget(): void {
    this.#isForgotten = true;
    if (this.isBackground) this.interrupt("cancelled");
    else this.#stop.abort();
  }

  /** Ends the response if its client has disconnected. A response whose id no client has received is not stored. */
  abandon(): void {
    if (this.isEnded) return;
    if (this.#wasAdded === null) this.#isForgotten = true;
    this.interrupt("incomplete");
  }

  /** Stores a background response before it starts, so that clients can retrieve it. Throws if the store rejects it. */
  async queue(): Promise<void> {
    this.#takeEvents();
    await this.#add();
  }

  /**
   * Adds new events to the log. If the response has just ended, saves its final state, releases the lease that counts its
   * memory, and calls the owner's `ended`. Otherwise, saves a streamed response that has not been saved yet. Returns the text of
   * the new events.
   */
  #step(): string | Iterable<string> {
    const isEnd = this.isEnded && !this.#hasEnded;
    const text = this.#takeEvents(isEnd ? DONE : "");
    if (isEnd) {
      this.#hasEnded = true;
      this.log?.close();
    }
    // The last write to the store begins before the last text is returned, so that this text waits for the write (see `held`).
    if (isEnd && this.status !== "failed") this.#plan.onItems?.(itemTexts(withoutLogprobs(this.#fold.state.output)));
    if (isEnd) this.#keepEnd();
    else if (!this.isEnded && this.#plan.isStreamed && this.#wasAdded === null) this.#add().catch(alreadyLogged);
    if (isEnd) {
      this.#plan.lease.release();
      this.#owner.ended(this);
    }
    return text;
  }

  /** Appends new events to the log. Returns the text of these events, followed by `end`. */
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
    // The list of stored output items is empty, because no response can continue a response in progress.
    const { restart } = this.#plan;
    const record = {
      ...this.added({ id: this.id, ...running, output: itemTexts([]), outputStart: null, events: null }),
      ...(restart === null ? {} : { restart }),
    };
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

  /**
   * Yields versions of the final state to store: the complete state, then smaller ones. A version is built only when it is
   * requested.
   */
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

  /** Returns a complete record for the store: the update and the properties that never change. */
  added(update: ResponseUpdate): StoredResponse {
    const { client, previousId, isBackground, input, inputStart, head } = this.#plan;
    const { createdAt, model, settings } = head;
    const isPublished = this.#owner.isShared && this.log !== null;
    return { ...update, client, previousId, isBackground, isPublished, createdAt, model, inputStart, input, settings };
  }

  /** Builds a final state to store. Throws invalid_value if it is too large to be stored. */
  async #end(state: ResponseState, events: readonly EventChunk[] | null): Promise<ResponseUpdate> {
    return {
      id: this.id,
      isRunning: false,
      status: state.status,
      body: await utf8Of(bodyPieces(this.#plan.head, state), maxStoredBytes),
      interrupted: null,
      output: itemTexts(withoutLogprobs(state.output)),
      outputStart: outputStart(state.output),
      events:
        events === null ? null : { first: events[0]?.first ?? 0, text: await utf8Of(piecesOf(events), maxStoredBytes) },
    };
  }

  #bodyNow(state: ResponseState): Uint8Array {
    return ownBytes(Buffer.from([...bodyPieces(this.#plan.head, state)].join("")));
  }
}
