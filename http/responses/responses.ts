// Responses: manages running responses and reads stored responses. While a response runs, only its ResponseRun changes it, so
// no change is lost. Created by the app; used by the routes of this folder.

import type { AgentEvent } from "../../actors/api/agent/agents.ts";
import type {
  FoundResponse,
  ItemPage,
  ItemTexts,
  ListedPage,
  ListedResponse,
  PageRequest,
  Span,
  StoredResponses,
} from "../../actors/api/stored-responses.ts";
import { ServerError, toErrorRecord } from "../../runtime/errors.ts";
import type { Log } from "../observe/log.ts";
import type { Piece } from "../server/write-piece.ts";
import { unknownAfter } from "../shared/fields/page-query.ts";
import { type ResponsePlan, ResponseRun, type RunOwner } from "./response-run.ts";
import { checkStart, type EventLog } from "./stored/event-log.ts";
import { allKeptBytes, eventsAfter, keptBytes, keptSlice, lengthOf } from "./stored/kept-bytes.ts";
import { LastResponses } from "./stored/last-responses.ts";
import { ResponseSaver } from "./stored/response-saver.ts";

/** Maximum bytes of the requests of all running background responses. Each request counts until its response has ended. */
export const MAX_BACKGROUND_BYTES = 256 * 2 ** 20;

/**
 * Maximum attempts to read a stored response. An attempt fails if the response changes between lookup and read. A response
 * changes only once or twice.
 */
const MAX_TRIES = 4;

export interface ResponsesOptions {
  readonly store: StoredResponses;
  readonly log: Log;
  /** Maximum number of background responses that run at the same time. */
  readonly maxBackground: number;
  readonly maxBackgroundBytes?: number;
  /** Milliseconds before a failed save is retried. */
  readonly saveRetryMs?: number;
  /** Maximum bytes of responses that wait to be saved. */
  readonly maxWaitingBytes?: number;
}

/** Stored text that is read on demand. */
export interface KeptText {
  readonly bytes: number;
  /** Reads the text. Throws not_found if it is no longer stored. */
  read(): Promise<Uint8Array>;
}

interface ShownState {
  readonly status: string;
  readonly isBackground: boolean;
  readonly spans: readonly Span[];
}

export class Responses implements RunOwner {
  readonly saver: ResponseSaver;
  /** Unstored responses that a WebSocket connection may continue. */
  readonly last = new LastResponses();
  readonly #options: ResponsesOptions;
  readonly #running = new Map<string, ResponseRun>();
  /** Size in bytes of the request of each running background response, by response id. */
  readonly #background = new Map<string, number>();
  #backgroundBytes = 0;
  #isStopping = false;

  constructor(options: ResponsesOptions) {
    this.#options = options;
    const { store, log, saveRetryMs, maxWaitingBytes } = options;
    this.saver = new ResponseSaver(store, log, { retryMs: saveRetryMs, maxWaitingBytes });
  }

  /** Begins a response. The caller passes the generation events to the returned run. */
  begin(plan: ResponsePlan): ResponseRun {
    const run = new ResponseRun(plan, this);
    // A response that is not stored cannot be retrieved, not even while it runs.
    if (plan.isStored) this.#running.set(run.id, run);
    return run;
  }

  /**
   * Begins a background response; `requestBytes` is the size of its request. The caller then passes the run to `pump`. Throws
   * queue_full if a limit is exceeded, or the store's error if the response cannot be stored.
   */
  async beginBackground(plan: ResponsePlan, requestBytes: number): Promise<ResponseRun> {
    this.#admit(requestBytes);
    const run = this.begin(plan);
    this.#background.set(run.id, requestBytes);
    this.#backgroundBytes += requestBytes;
    try {
      await run.queue();
    } catch (error) {
      run.forget();
      throw error;
    }
    return run;
  }

  /**
   * Processes the generation events of a background response. Never rejects. It holds no reference to the request, because the
   * request may be long.
   */
  async pump(run: ResponseRun, events: AsyncIterable<readonly AgentEvent[]>): Promise<void> {
    try {
      for await (const batch of events) {
        const last = batch.at(-1);
        // The request was cancelled, or the session in which it ran was deleted.
        if (last?.type === "error" && last.error.code === "cancelled") run.interrupt("cancelled");
        else run.encode(batch);
        if (run.isEnded) return;
      }
      if (run.isEnded) return;
      throw new ServerError("peer_gone", "the generation ended before it was done; send the request again");
    } catch (thrown) {
      if (!(thrown instanceof ServerError)) {
        this.#options.log.error({ response: run.id, err: thrown }, "a response failed unexpectedly");
      }
      run.fail(thrown instanceof ServerError ? toErrorRecord(thrown) : unexpected);
    }
  }

  /** Yields the response as JSON. Throws not_found. */
  async *body(id: string): AsyncGenerator<Piece> {
    const run = this.#running.get(id);
    if (run !== undefined) {
      yield* run.json();
      return;
    }
    const { store } = this.#options;
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const found = await this.#found(id);
      const spans = shownState(found).spans;
      const first = await keptSlice(store, spans, 0);
      // Another server has stored the response's final state since the lookup, so look it up again.
      if (first === null) continue;
      yield first;
      yield* keptBytes(store, spans, first.byteLength);
      return;
    }
    throw new ServerError("storage_unavailable", `the response '${id}' changes while it is read; try again`);
  }

  /** Returns a page of the stored responses. Running responses have their current state. Throws invalid_value. */
  async list(request: Parameters<StoredResponses["list"]>[0]): Promise<ListedPage> {
    // A client that has received a response finds it in the list.
    await Promise.all([...this.saver.pendingIds()].map((id) => this.saver.settled(id)));
    // The runs are collected before the store is read. If a response ends during the read, the store may still return it as
    // running.
    const runs = new Map(this.#running);
    const page = await this.#options.store.list(request);
    if (page === null) throw unknownAfter("response", request);
    return { ...page, responses: page.responses.map((response) => listed(response, runs.get(response.id))) };
  }

  /** Deletes a response, and ends its generation if it is running. Throws not_found. */
  async delete(id: string): Promise<void> {
    const run = this.#running.get(id);
    run?.forget();
    this.#running.delete(id);
    // Wait for a pending save, because it must not reach the store after the deletion.
    await this.saver.settled(id);
    const wasKept = isResponseId(id) && (await this.#options.store.delete(id));
    if (run === undefined && !wasKept) throw unknownResponse(id);
  }

  /**
   * Cancels a background response and yields it as JSON. A response that is already cancelled is yielded unchanged. Throws
   * not_found.
   */
  async *cancel(id: string): AsyncGenerator<Piece> {
    const run = this.#running.get(id);
    if (run?.isBackground) run.interrupt("cancelled");
    const { status, isBackground } = run ?? shownState(await this.#found(id));
    if (run?.isBackground) yield* run.json();
    else if (status === "cancelled") yield* this.body(id);
    else {
      const state = isBackground ? `is ${status}` : "does not run in the background";
      const text = `Response with ID '${id}' ${state}: only a background response that is queued or in progress can be cancelled`;
      throw new ServerError("not_found", text, { param: "response_id" });
    }
  }

  /**
   * Returns the events with a sequence number above `after` of a streamed background response. The result is the event log if
   * more events may follow, else the stored events. Throws not_found.
   */
  async events(id: string, after: number): Promise<EventLog | AsyncIterable<Piece>> {
    const run = this.#running.get(id);
    if (run?.log) return run.log;
    const found = run === undefined ? await this.#found(id) : null;
    if (found?.events) {
      const { first, spans } = found.events;
      checkStart(after, first);
      return eventsAfter(keptBytes(this.#options.store, spans), after + 1 - first);
    }
    const isLost = found !== null && found.runner !== null;
    const text = isLost
      ? `the server that generated response '${id}' failed before its events were stored`
      : `response '${id}' has no stored events: only a response created with background: true and stream: true has them`;
    throw new ServerError("not_found", text, { param: "stream" });
  }

  /** Returns the JSON text of an input or output item; null if it is not stored. */
  async item(id: string, itemId: string): Promise<KeptText | null> {
    await this.saver.settled(id);
    const { store } = this.#options;
    const spans = isResponseId(id) ? await store.item({ id, itemId }) : null;
    return spans === null ? null : { bytes: lengthOf(spans), read: () => allKeptBytes(store, spans) };
  }

  /** Returns a page of a response's input items, with their texts. Throws not_found and invalid_value. */
  async inputItems(request: PageRequest): Promise<{ readonly page: ItemPage; readonly texts: AsyncIterable<Piece> }> {
    await this.saver.settled(request.id);
    const { store } = this.#options;
    const page = isResponseId(request.id) ? await store.page(request) : null;
    if (page === null) throw unknownResponse(request.id);
    return { page, texts: keptBytes(store, page.spans) };
  }

  /**
   * Returns the items of a response and of all responses that it continues. Throws previous_response_not_found, conflict and
   * invalid_value.
   */
  async history(id: string): Promise<readonly ItemTexts[]> {
    if (!isResponseId(id)) throw missingPrevious(unknownResponse(id));
    await this.saver.settled(id);
    // The ids are collected before the store is read. If a response ends during the read, the store may still return it as
    // running.
    const generated = new Set([...this.#running.keys(), ...this.saver.pendingIds()]);
    const turns = await this.#options.store.history(id).catch((error) => {
      throw error instanceof ServerError && error.code === "not_found" ? missingPrevious(error) : error;
    });
    const running = turns.find(
      (turn) => turn.runner === "elsewhere" || (turn.runner === "here" && generated.has(turn.id)),
    );
    if (running === undefined) return turns.map(({ items }) => items);
    const text = `the response '${running.id}' is still in progress; wait until it has ended, or cancel it`;
    throw new ServerError("conflict", text, { param: "previous_response_id" });
  }

  /** Interrupts the background responses, and rejects new ones from now on. */
  interruptBackground(): void {
    this.#isStopping = true;
    const background = [...this.#running.values()].filter(({ isBackground }) => isBackground);
    for (const run of background) run.interrupt("incomplete");
    const count = background.length;
    if (count > 0) this.#options.log.warn({ count }, "background responses were interrupted and stored as incomplete");
  }

  ended(run: ResponseRun): void {
    this.#running.delete(run.id);
    this.#backgroundBytes -= this.#background.get(run.id) ?? 0;
    this.#background.delete(run.id);
  }

  /** Finds a stored response. Throws not_found. */
  async #found(id: string): Promise<FoundResponse> {
    // Wait for pending saves, so that the store knows how the response ended.
    await this.saver.settled(id);
    const found = isResponseId(id) ? await this.#options.store.find(id) : null;
    if (found === null) throw unknownResponse(id);
    return found;
  }

  #admit(requestBytes: number): void {
    const { maxBackground, maxBackgroundBytes = MAX_BACKGROUND_BYTES } = this.#options;
    if (this.#isStopping) {
      throw new ServerError("draining", "the server is shutting down; send the request to another one");
    }
    const what =
      this.#background.size >= maxBackground
        ? `${maxBackground} background responses are in progress (max_background_responses)`
        : this.#backgroundBytes + requestBytes > maxBackgroundBytes
          ? `the requests of background responses may have ${maxBackgroundBytes} bytes in total; this one of ${requestBytes} bytes exceeds that`
          : null;
    if (what !== null) throw new ServerError("queue_full", `${what}; try again when some have ended`);
  }
}

const unexpected = { code: "internal", message: "internal error; details are in the server log" } as const;

/** Returns the state of a stored response as clients see it. */
function shownState({ runner, status, isBackground, body, interrupted }: FoundResponse): ShownState {
  // A response that runs in this process is in #running, so its stored state is not read. A stored response that is assigned to
  // this process has therefore ended, but its final state could not be stored.
  const isInterrupted = interrupted !== null && (runner === "nobody" || runner === "here");
  return isInterrupted
    ? { status: "incomplete", isBackground, spans: interrupted }
    : { status, isBackground, spans: body };
}

/**
 * Like shownState, for a response in a list. `run`: its run in this process; undefined: the response does not run here.
 */
function listed(response: ListedResponse, run: ResponseRun | undefined): ListedResponse {
  if (run !== undefined) return { ...response, status: run.status, outputStart: run.outputStart };
  const isInterrupted = response.runner === "nobody" || response.runner === "here";
  return isInterrupted ? { ...response, status: "incomplete" } : response;
}

/** Checks whether an id has the form of a response id, because a client may send any text. */
function isResponseId(id: string): boolean {
  return /^resp_[0-9a-f]{32}$/.test(id);
}

function unknownResponse(id: string): ServerError {
  return new ServerError("not_found", `Response with ID '${id.slice(0, 100)}' not found`, { param: "response_id" });
}

function missingPrevious({ message }: ServerError): ServerError {
  const text = `${message}; send the whole conversation as input`;
  return new ServerError("previous_response_not_found", text, { param: "previous_response_id" });
}
