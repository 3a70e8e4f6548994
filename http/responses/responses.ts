// Responses: manages running responses and reads stored responses. While a response runs, only its ResponseRun changes it, so
// no change is lost. Created by the app; used by the routes of this folder.

import { setTimeout as sleep } from "node:timers/promises";
import type { AgentEvent } from "../../actors/api/agent/agents.ts";
import type { Replicas } from "../../actors/api/state/replicas.ts";
import type {
  ClaimedResponse,
  FoundResponse,
  ItemPage,
  ItemTexts,
  ListedPage,
  ListedResponse,
  PageRequest,
  Span,
  StoredResponses,
} from "../../actors/api/stored-responses.ts";
import { resolvesWithin } from "../../runtime/clock.ts";
import { type ErrorRecord, ServerError, toErrorRecord } from "../../runtime/errors.ts";
import type { Log } from "../observe/log.ts";
import type { Piece } from "../server/write-piece.ts";
import { unknownAfter } from "../shared/fields/page-query.ts";
import { type ResponsePlan, ResponseRun, type RunOwner } from "./response-run.ts";
import { checkStart, type EventLog } from "./stored/event-log.ts";
import { publishEvents } from "./stored/event-publisher.ts";
import { FollowedLog } from "./stored/followed-log.ts";
import { allKeptBytes, eventsAfter, keptBytes, keptSlice, lengthOf } from "./stored/kept-bytes.ts";
import { LastResponses } from "./stored/last-responses.ts";
import { notStoredYet, ResponseSaver } from "./stored/response-saver.ts";

/** Maximum bytes of the requests of all running background responses. Each request counts until its response has ended. */
export const MAX_BACKGROUND_BYTES = 256 * 2 ** 20;

/**
 * Maximum attempts to read a stored response. An attempt fails if the response changes between lookup and read. A response
 * changes only once or twice.
 */
const MAX_TRIES = 4;
/**
 * Attempts, and milliseconds between them, of what must be written also if the store is lost now: that a response has output, and the
 * deletion of a response that no longer runs.
 */
const LOST_TRIES = 120;
const LOST_RETRY_MS = 500;
/** Maximum milliseconds that another replica's question waits for a write; shorter than replicas wait for answers. */
const SETTLE_MS = 4000;
/** Milliseconds after which a response that may still be written again, because the shared state was lost, is reported as such. */
const READ_MS = 10_000;
/** Milliseconds between questions to other replicas while the shared state was lost a moment ago. */
const ASK_AGAIN_MS = 250;

export interface ResponsesOptions {
  readonly store: StoredResponses;
  /** Other servers with the same store; null or absent: none. */
  readonly replicas?: Replicas | null;
  readonly log: Log;
  /** Maximum number of background responses that run at the same time. */
  readonly maxBackground: number;
  readonly maxBackgroundBytes?: number;
  /** Whether background responses without output whose server has ended are generated again; default false. */
  readonly restartsBackground?: boolean;
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
  readonly #replicas: Replicas | null;
  readonly #running = new Map<string, ResponseRun>();
  /** Size in bytes of the request of each running background response, by response id. */
  readonly #background = new Map<string, number>();
  #backgroundBytes = 0;
  /** Called when the last background response has ended. */
  readonly #onIdle: (() => void)[] = [];
  /** Pending writes that hand responses over to other servers. */
  readonly #releases = new Set<Promise<void>>();
  #isStopping = false;

  constructor(options: ResponsesOptions) {
    this.#options = options;
    const { store, log, saveRetryMs, maxWaitingBytes } = options;
    this.saver = new ResponseSaver(store, log, {
      retryMs: saveRetryMs,
      maxWaitingBytes,
    });
    this.#replicas = options.replicas ?? null;
    this.#replicas?.answer("cancelResponse", ({ id }) => this.#endForOther(id, (run) => run.interrupt("cancelled")));
    this.#replicas?.answer("forgetResponse", ({ id }) => this.#forgetForOther(id));
    this.#replicas?.answer("settleResponse", ({ id }) => this.#settleForOther(id));
  }

  get isShared(): boolean {
    return this.#replicas !== null;
  }

  /** Whether the shared store is lost now. */
  get isStoreLost(): boolean {
    return this.#replicas !== null && !this.#replicas.health().isConnected;
  }

  /** Begins a response. The caller passes the generation events to the returned run. */
  begin(plan: ResponsePlan): ResponseRun {
    const run = new ResponseRun(plan, this);
    // A response that is not stored cannot be retrieved, not even while it runs.
    if (plan.isStored) {
      // A response that this server has lost to another one and claimed back has one run.
      this.#running.get(run.id)?.handOver(restartsElsewhere);
      this.#running.set(run.id, run);
    }
    return run;
  }

  /**
   * Begins a background response; `requestBytes` is the size of its request. The caller then passes the run to `pump`. Throws
   * queue_full if a limit is exceeded, or the store's error if the response cannot be stored.
   */
  async beginBackground(plan: ResponsePlan, requestBytes: number): Promise<ResponseRun> {
    // A restarted response was admitted when it was claimed.
    if (plan.restart === null || plan.restart.count === 0) this.#admit(requestBytes);
    else if (this.#isStopping) throw stopping();
    const run = this.begin(plan);
    this.#background.set(run.id, requestBytes);
    this.#backgroundBytes += requestBytes;
    try {
      await run.queue();
    } catch (error) {
      run.forget();
      throw error;
    }
    // The first events of the log are published too, after the response is stored.
    if (this.#replicas !== null && run.log !== null) {
      const { id, log } = run;
      void publishEvents({ id, log, replicas: this.#replicas, settled: () => this.saver.settled(id) });
    }
    return run;
  }

  /**
   * Processes the generation events of a background response. Never rejects. It holds no reference to the request, because the
   * request may be long.
   */
  async pump(run: ResponseRun, events: AsyncIterable<readonly AgentEvent[]>): Promise<void> {
    let held: readonly AgentEvent[] = [];
    try {
      for await (const added of events) {
        const batch = held.length === 0 ? added : [...held, ...added];
        held = run.isUnstarted && batch.every(isBeforeOutput) ? batch : [];
        if (held.length > 0) continue;
        if (run.isUnstarted) await this.#start(run);
        if (run.isEnded || run.isHandedOver) return;
        const last = batch.at(-1);
        // The request was cancelled, or the session in which it ran was deleted.
        if (last?.type === "error" && last.error.code === "cancelled") run.interrupt("cancelled");
        else run.encode(batch);
        if (run.isEnded) return;
      }
      if (run.isEnded || run.isHandedOver) return;
      throw new ServerError("peer_gone", "the generation ended before it was done; send the request again");
    } catch (thrown) {
      if (!(thrown instanceof ServerError)) {
        this.#options.log.error({ response: run.id, err: thrown }, "a response failed unexpectedly");
      }
      if (!run.isHandedOver) run.fail(thrown instanceof ServerError ? toErrorRecord(thrown) : unexpected);
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
    await Promise.all([...this.saver.pendingIds()].map((id) => this.saver.readable(id)));
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
    await this.saver.readable(id);
    const wasEnded =
      run !== undefined || (this.#replicas !== null && (await this.#forgetElsewhere(id, this.#replicas)));
    let wasKept = false;
    try {
      wasKept = isResponseId(id) && (await this.#options.store.delete(id));
    } catch (error) {
      // Its end is not stored, so it would be shown as running.
      if (run !== undefined) void this.#deleteLater(id);
      throw error;
    }
    if (!wasEnded && !wasKept) throw unknownResponse(id);
  }

  /**
   * Cancels a background response and yields it as JSON. A response that is already cancelled is yielded unchanged. Throws
   * not_found.
   */
  async *cancel(id: string): AsyncGenerator<Piece> {
    const run = this.#running.get(id);
    if (run?.isBackground) run.interrupt("cancelled");
    if (run === undefined && this.#replicas !== null) await this.#cancelElsewhere(id, this.#replicas);
    const { status, isBackground } = run ?? shownState(await this.#found(id));
    if (run?.isBackground) {
      await run.held();
      yield* run.json();
    } else if (status === "cancelled") yield* this.body(id);
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
  async events(id: string, after: number): Promise<EventLog | FollowedLog | AsyncIterable<Piece>> {
    const run = this.#running.get(id);
    if (run?.log) return run.log;
    const found = run === undefined ? await this.#found(id) : null;
    if (found?.events) {
      const { first, spans } = found.events;
      checkStart(after, first);
      return eventsAfter(keptBytes(this.#options.store, spans), after + 1 - first);
    }
    if (this.#replicas !== null && found?.isPublished && found.runner !== null) {
      return new FollowedLog({
        id,
        after,
        replicas: this.#replicas,
        find: () => this.#found(id),
        store: this.#options.store,
      });
    }
    if (found?.runner === "elsewhere" && found.isPublished) {
      throw new ServerError("peer_gone", `response '${id}' is about to be generated again; ask for its events soon`);
    }
    const isLost = found !== null && found.runner !== null;
    const text = isLost
      ? `the server that generated response '${id}' failed before its events were stored`
      : `response '${id}' has no stored events: only a response created with background: true and stream: true has them`;
    throw new ServerError("not_found", text, { param: "stream" });
  }

  /** Returns the JSON text of an input or output item; null if it is not stored. */
  async item(id: string, itemId: string): Promise<KeptText | null> {
    const { store } = this.#options;
    const spans = await this.#read(id, () => store.item({ id, itemId }));
    return spans === null ? null : { bytes: lengthOf(spans), read: () => allKeptBytes(store, spans) };
  }

  /** Returns a page of a response's input items, with their texts. Throws not_found and invalid_value. */
  async inputItems(request: PageRequest): Promise<{ readonly page: ItemPage; readonly texts: AsyncIterable<Piece> }> {
    const { store } = this.#options;
    const page = await this.#read(request.id, () => store.page(request));
    if (page === null) throw unknownResponse(request.id);
    return { page, texts: keptBytes(store, page.spans) };
  }

  /**
   * Returns the items of a response and of all responses that it continues. Throws previous_response_not_found, conflict and
   * invalid_value.
   */
  async history(id: string): Promise<readonly ItemTexts[]> {
    let generated = new Set<string>();
    let missing = unknownResponse(id);
    const turns = await this.#read(id, () => {
      // The ids are collected before the store is read. If a response ends during the read, the store may still return it as
      // running.
      generated = new Set([...this.#running.keys(), ...this.saver.pendingIds()]);
      return this.#options.store.history(id).catch((error) => {
        if (!(error instanceof ServerError && error.code === "not_found")) throw error;
        missing = error;
        return null;
      });
    });
    if (turns === null) throw missingPrevious(missing);
    const running = turns.find(
      (turn) => turn.runner === "elsewhere" || (turn.runner === "here" && generated.has(turn.id)),
    );
    if (running === undefined) return turns.map(({ items }) => items);
    const text = `the response '${running.id}' is still in progress; wait until it has ended, or cancel it`;
    throw new ServerError("conflict", text, { param: "previous_response_id" });
  }

  /** Resolves when no background response is running. */
  async backgroundEnded(): Promise<void> {
    while (this.#background.size > 0) await new Promise<void>((resolve) => this.#onIdle.push(resolve));
  }

  /** Interrupts the background responses, and rejects new ones from now on. */
  interruptBackground(): void {
    this.#isStopping = true;
    const background = [...this.#running.values()].filter(({ isBackground }) => isBackground);
    const unstarted = background.filter(({ isUnstarted }) => isUnstarted);
    for (const run of unstarted) {
      run.handOver(restartsElsewhere);
      void this.release(run.id);
    }
    for (const run of background) run.interrupt("incomplete");
    const count = background.length - unstarted.length;
    if (unstarted.length > 0) {
      const text = "background responses without output are left to another replica, or to the next start";
      this.#options.log.info({ count: unstarted.length }, text);
    }
    if (count > 0) this.#options.log.warn({ count }, "background responses were interrupted and stored as incomplete");
  }

  /** Whether background responses without output whose server has ended are generated again. */
  get restartsBackground(): boolean {
    return this.#options.restartsBackground ?? false;
  }

  /**
   * Claims responses of servers that have ended, at most as many as may run here. `waiting`: number of claimed responses that have
   * not begun. Throws storage_unavailable.
   */
  async claim(waiting: number): Promise<readonly ClaimedResponse[]> {
    const free = this.#options.maxBackground - this.#background.size - waiting;
    return this.#isStopping || free <= 0 ? [] : await this.#options.store.claim(free);
  }

  /**
   * Leaves a response without output to another server. Resolves to whether the store has it; if it is lost, the other server waits
   * until this one has ended. Never rejects.
   */
  async release(id: string): Promise<boolean> {
    const releasing = this.saver.settled(id).then(() => this.#options.store.release(id));
    this.#releases.add(releasing);
    try {
      await releasing;
      return true;
    } catch {
      return false;
    } finally {
      this.#releases.delete(releasing);
    }
  }

  /** Resolves when nothing more is written to the store. Called when the server stops. */
  async settled(): Promise<void> {
    await Promise.allSettled(this.#releases);
    await this.saver.allSettled();
  }

  /** Ends a claimed response that cannot be generated here, as interrupted. Throws storage_unavailable. */
  async giveUp(id: string): Promise<void> {
    await this.#options.store.giveUp(id);
  }

  ended(run: ResponseRun): void {
    if (this.#running.get(run.id) === run) this.#running.delete(run.id);
    this.#backgroundBytes -= this.#background.get(run.id) ?? 0;
    this.#background.delete(run.id);
    if (this.#background.size === 0) for (const wake of this.#onIdle.splice(0)) wake();
  }

  /**
   * Called before the first output of a response that another server may restart. If one has done so, or the store stays lost, the
   * run ends here.
   */
  async #start(run: ResponseRun): Promise<void> {
    run.start();
    let isOurs: boolean | null = null;
    for (let tries = 0; isOurs === null && tries < LOST_TRIES && !run.isEnded; tries++) {
      if (tries > 0) await sleep(LOST_RETRY_MS);
      isOurs = await this.#options.store.begin(run.id).catch(() => null);
    }
    if (isOurs === true) return;
    const reason = isOurs === null ? "the shared state was lost" : "another replica has taken it over, or deleted it";
    this.#options.log.warn({ response: run.id, reason }, "a background response is not generated here any longer");
    if (run.isEnded) return;
    // Without an answer of the store this server still owns the response, so it ends it: nobody else would.
    const lost = "the shared state was lost before the first output; send the request again";
    if (isOurs === null) run.fail(toErrorRecord(new ServerError("storage_unavailable", lost)));
    else run.handOver(restartsElsewhere);
  }

  /**
   * Ends a background response for another replica. Resolves to true when its end is stored; null: it does not run here.
   */
  async #endForOther(id: string, end: (run: ResponseRun) => void): Promise<true | null> {
    const run = this.#running.get(id);
    // A response that has just ended is still being stored.
    if (run === undefined && !this.saver.isPending(id)) return null;
    if (run !== undefined) end(run);
    await this.saver.settled(id);
    return true;
  }

  /** Ends a response that another replica deletes. Deletes it here too, because the other replica may lose the store before. */
  async #forgetForOther(id: string): Promise<true | null> {
    const answer = await this.#endForOther(id, (run) => run.forget());
    if (answer !== null) void this.#deleteLater(id);
    return answer;
  }

  /** Deletes a response that no longer runs, also if the store is lost now. Never rejects. */
  async #deleteLater(id: string): Promise<void> {
    for (let tries = 0; tries < LOST_TRIES; tries++) {
      const isDone = await this.#options.store.delete(id).then(
        () => true,
        () => false,
      );
      if (isDone) return;
      await sleep(LOST_RETRY_MS);
    }
  }

  /** Waits for the writes of a response for another replica: see `settleResponse`. */
  async #settleForOther(id: string): Promise<true | null> {
    const isOurs = this.#running.has(id) || this.saver.isPending(id);
    const isWritten = await resolvesWithin(
      SETTLE_MS,
      Promise.all([this.saver.settled(id), this.#replicas?.restored()]),
    );
    return isOurs || !isWritten ? true : null;
  }

  /** Has the replica that generates a response cancel it. Throws peer_gone if it does not answer. */
  async #cancelElsewhere(id: string, replicas: Replicas): Promise<void> {
    const found = await this.#found(id);
    if (found.runner !== "elsewhere" || !found.isBackground) return;
    const answers = await replicas.ask(found.owner, "cancelResponse", { id }, true);
    if (answers.length > 0) return;
    const later = await this.#found(id);
    if (later.runner !== "elsewhere") return;
    throw new ServerError("peer_gone", `the replica that generates response '${id}' does not answer; try again soon`);
  }

  /**
   * Has the replica that generates a response end it. Resolves to whether it did. If it does not answer, its later writes are dropped
   * all the same.
   */
  async #forgetElsewhere(id: string, replicas: Replicas): Promise<boolean> {
    const found = await this.#find(id);
    if (found?.runner !== "elsewhere") return false;
    return (await replicas.ask(found.owner, "forgetResponse", { id }, true)).length > 0;
  }

  /** Finds a stored response. Throws not_found. */
  async #found(id: string): Promise<FoundResponse> {
    const found = await this.#find(id);
    if (found === null) throw unknownResponse(id);
    return found;
  }

  async #find(id: string): Promise<FoundResponse | null> {
    return await this.#read(id, () => this.#options.store.find(id));
  }

  /**
   * Reads a response from the store; null: it is not stored. `read` returns null if the store does not have it. While the shared
   * store is lost, a client may have an id before the replica that generated the response could store it; then this waits for that
   * replica. Throws storage_unavailable if the write still waits.
   */
  async #read<T>(id: string, read: () => Promise<T | null>): Promise<T | null> {
    if (!isResponseId(id)) return null;
    // Wait for pending saves, so that the store knows how the response ended.
    await this.saver.readable(id);
    const found = await read();
    if (found !== null || this.#replicas === null || this.#running.has(id)) return found;
    for (const began = performance.now(); ; ) {
      const answers = await this.#replicas.ask(null, "settleResponse", { id }, true, true);
      // Read again even without an answer: the response may have been stored before the question arrived.
      const later = await read();
      if (later !== null) return later;
      if (answers.length > 0 || performance.now() > began + READ_MS) throw notStoredYet(id);
      // Until all replicas are connected again, one that has the response may not have got the question.
      if (!this.#replicas.wasLost()) return null;
      await sleep(ASK_AGAIN_MS);
    }
  }

  #admit(requestBytes: number): void {
    const { maxBackground, maxBackgroundBytes = MAX_BACKGROUND_BYTES } = this.#options;
    if (this.#isStopping) throw stopping();
    const what =
      this.#background.size >= maxBackground
        ? `${maxBackground} background responses are in progress (max_background_responses)`
        : this.#backgroundBytes + requestBytes > maxBackgroundBytes
          ? `the requests of background responses may have ${maxBackgroundBytes} bytes in total; this one of ${requestBytes} bytes exceeds that`
          : null;
    if (what !== null) throw new ServerError("queue_full", `${what}; try again when some have ended`);
  }
}

function stopping(): ServerError {
  return new ServerError("draining", "the server is shutting down; send the request to another one");
}

/** Whether an event precedes all output of a run, and is the same if the run begins again. */
function isBeforeOutput({ type }: AgentEvent): boolean {
  return type === "session";
}

const restartsElsewhere: ErrorRecord = {
  code: "peer_gone",
  message:
    "the response is generated by another server; ask for its events at GET /v1/responses/{response_id}?stream=true",
};
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
