// Responses: manages running responses and reads stored ones. A running response is changed only by its ResponseRun, so no
// change is lost. Created by the app; used by the routes of this folder.

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

/** Maximum total bytes of the requests of running background responses. A request counts until its response has ended. */
export const MAX_BACKGROUND_BYTES = 256 * 2 ** 20;

/**
 * Maximum attempts to read a stored response. An attempt fails if the response changes between lookup and read. A response
 * changes only once or twice.
 */
const MAX_TRIES = 4;
/**
 * Number of attempts, and milliseconds between attempts, of writes that must succeed even if the store is temporarily
 * unavailable: the mark that a response has output, and the deletion of a response that is not running.
 */
const LOST_TRIES = 120;
const LOST_RETRY_MS = 500;
/**
 * Maximum milliseconds for which another replica's request waits for a write. Shorter than the time that replicas wait for a
 * reply.
 */
const SETTLE_MS = 4000;
/**
 * Maximum milliseconds for which the read of an unknown response waits, if the shared state was unavailable. A replica that
 * could not store the response may do so within this time. Afterwards, the read fails with the error that the response is not
 * stored yet.
 */
const READ_MS = 10_000;
/**
 * Milliseconds between requests to other replicas about an unknown response, shortly after the shared state was unavailable.
 */
const ASK_AGAIN_MS = 250;

export interface ResponsesOptions {
  readonly store: StoredResponses;
  /** Other servers with the same store; null or absent if there are none. */
  readonly replicas?: Replicas | null;
  readonly log: Log;
  /** Maximum number of concurrent background responses. */
  readonly maxBackground: number;
  readonly maxBackgroundBytes?: number;
  /** Whether background responses are generated again if their server ends before their first output; default: false. */
  readonly restartsBackground?: boolean;
  /** Milliseconds before the first retry of a failed save. */
  readonly saveRetryMs?: number;
  /** Maximum total bytes of responses that wait to be saved. */
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
  /** Responses that are not stored but may be continued on their WebSocket connection. */
  readonly last = new LastResponses();
  readonly #options: ResponsesOptions;
  readonly #replicas: Replicas | null;
  readonly #running = new Map<string, ResponseRun>();
  /** Size in bytes of the request of each running background response, by response id. */
  readonly #background = new Map<string, number>();
  #backgroundBytes = 0;
  /** Called when the last background response has ended. */
  readonly #onIdle: (() => void)[] = [];
  /** Pending writes that release responses, so that other servers may generate them. */
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

  /** Whether the shared store is currently unavailable. */
  get isStoreLost(): boolean {
    return this.#replicas !== null && !this.#replicas.health().isConnected;
  }

  /** Begins a response. The caller passes the generation events to the returned run. */
  begin(plan: ResponsePlan): ResponseRun {
    const run = new ResponseRun(plan, this);
    // A response that is not stored cannot be retrieved, even while it runs.
    if (plan.isStored) {
      // This server may have lost the response to another server and claimed it back. Then only the new run remains.
      this.#running.get(run.id)?.handOver(restartsElsewhere);
      this.#running.set(run.id, run);
    }
    return run;
  }

  /**
   * Begins a background response. The caller must pass the run to `pump`. `requestBytes`: size of the request. Throws
   * queue_full if a limit is exceeded, or the store's error if the response cannot be stored.
   */
  async beginBackground(plan: ResponsePlan, requestBytes: number): Promise<ResponseRun> {
    // A restarted response was already counted against the limits when it was claimed.
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
    // The events are published only now, because the response must be stored first. The log may already have some events.
    if (this.#replicas !== null && run.log !== null) {
      const { id, log } = run;
      void publishEvents({ id, log, replicas: this.#replicas, settled: () => this.saver.settled(id) });
    }
    return run;
  }

  /**
   * Processes the generation events of a background response. Never rejects. Holds no reference to the request, because the
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
        // The request was cancelled, or the session of its agent run was deleted.
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

  /** Yields the response as JSON. Throws not_found if the response is unknown. */
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
      // Another server has stored the final state after the lookup, so the response is looked up again.
      if (first === null) continue;
      yield first;
      yield* keptBytes(store, spans, first.byteLength);
      return;
    }
    throw new ServerError("storage_unavailable", `the response '${id}' changes while it is read; try again`);
  }

  /** Returns a page of the stored responses. For running responses it contains the current state. Throws invalid_value. */
  async list(request: Parameters<StoredResponses["list"]>[0]): Promise<ListedPage> {
    // Pending saves are completed first, so that the list contains every response that a client has received.
    await Promise.all([...this.saver.pendingIds()].map((id) => this.saver.readable(id)));
    // The running responses are copied before the store is read, because the store may return a response that ends during the
    // read as still running.
    const runs = new Map(this.#running);
    const page = await this.#options.store.list(request);
    if (page === null) throw unknownAfter("response", request);
    return { ...page, responses: page.responses.map((response) => listed(response, runs.get(response.id))) };
  }

  /** Deletes a response. If it is running, ends its generation. Throws not_found. */
  async delete(id: string): Promise<void> {
    const run = this.#running.get(id);
    run?.forget();
    this.#running.delete(id);
    let wasEnded = run !== undefined;
    let wasKept = false;
    try {
      // A pending save must not reach the store after the deletion, so wait for it.
      await this.saver.readable(id);
      wasEnded ||= this.#replicas !== null && (await this.#forgetElsewhere(id, this.#replicas));
      wasKept = isResponseId(id) && (await this.#options.store.delete(id));
    } catch (error) {
      // The end of this response is not stored, so the store would show it as running. The deletion is therefore retried.
      if (run !== undefined) void this.#deleteLater(id);
      throw error;
    }
    if (!wasEnded && !wasKept) throw unknownResponse(id);
  }

  /** Cancels a background response and yields it as JSON. Yields an already cancelled response unchanged. Throws not_found. */
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
   * Returns the events of a streamed background response with a sequence number above `after`. Returns the event log if more
   * events may follow, otherwise the stored events. Throws not_found.
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
        isRunningHere: () => this.#running.has(id),
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

  /** Returns a page of a response's input items, and their JSON texts. Throws not_found and invalid_value. */
  async inputItems(request: PageRequest): Promise<{ readonly page: ItemPage; readonly texts: AsyncIterable<Piece> }> {
    const { store } = this.#options;
    const page = await this.#read(request.id, () => store.page(request));
    if (page === null) throw unknownResponse(request.id);
    return { page, texts: keptBytes(store, page.spans) };
  }

  /**
   * Returns the items of a response and of all earlier responses in its conversation. Throws previous_response_not_found,
   * conflict and invalid_value.
   */
  async history(id: string): Promise<readonly ItemTexts[]> {
    let generated = new Set<string>();
    let missing = unknownResponse(id);
    const turns = await this.#read(id, () => {
      // The ids are copied before the store is read, because the store may return a response that ends during the read as still
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

  /** Interrupts the background responses and rejects new ones. */
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

  /** Whether background responses are generated again if their server ends before their first output. */
  get restartsBackground(): boolean {
    return this.#options.restartsBackground ?? false;
  }

  /**
   * Claims responses whose servers have ended, within the limit on background responses. `waitingIds`: ids of claimed responses
   * that have not begun. Throws storage_unavailable.
   */
  async claim(waitingIds: readonly string[]): Promise<readonly ClaimedResponse[]> {
    const limit = this.#options.maxBackground - this.#background.size - waitingIds.length;
    if (this.#isStopping || limit <= 0) return [];
    const heldIds = [...waitingIds, ...this.#background.keys(), ...this.saver.pendingIds()];
    return await this.#options.store.claim({ limit, heldIds });
  }

  /**
   * Gives a response without output to another server. Resolves to false if the store is unavailable; other servers then take
   * the response only after this server has ended. Never rejects.
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

  /** Resolves when all writes to the store have completed. Called when the server stops. */
  async settled(): Promise<void> {
    await Promise.allSettled(this.#releases);
    await this.saver.allSettled();
  }

  /**
   * Gives a claimed response that cannot be generated here the final status of an interrupted response. Throws
   * storage_unavailable.
   */
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
   * Marks in the store that a response begins its output. Called for responses that another server may restart. The run ends if
   * another server has restarted the response, or if the store stays unavailable.
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
    // Without a reply from the store, this server still owns the response and must end it, because no other server would.
    const lost = "the shared state was lost before the first output; send the request again";
    if (isOurs === null) run.fail(toErrorRecord(new ServerError("storage_unavailable", lost)));
    else run.handOver(restartsElsewhere);
  }

  /**
   * Ends a background response at the request of another replica. Resolves to true when the final state is stored, or to null
   * if the response does not run here.
   */
  async #endForOther(id: string, end: (run: ResponseRun) => void): Promise<true | null> {
    const run = this.#running.get(id);
    // A response that has just ended may still have a pending save.
    if (run === undefined && !this.saver.isPending(id)) return null;
    if (run !== undefined) end(run);
    await this.saver.settled(id);
    return true;
  }

  /**
   * Ends a response that another replica deletes. This replica deletes it too, because the other replica may lose its
   * connection to the store before it has deleted the response.
   */
  async #forgetForOther(id: string): Promise<true | null> {
    const answer = await this.#endForOther(id, (run) => run.forget());
    if (answer !== null) void this.#deleteLater(id);
    return answer;
  }

  /** Deletes a response that is not running. Retries while the store is unavailable. Never rejects. */
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

  /**
   * Waits, at the request of another replica (`settleResponse`), for the pending writes of a response. Resolves to true if this
   * replica has the response or the wait timed out, else to null.
   */
  async #settleForOther(id: string): Promise<true | null> {
    const isOurs = this.#running.has(id) || this.saver.isPending(id);
    const isWritten = await resolvesWithin(
      SETTLE_MS,
      Promise.all([this.saver.settled(id), this.#replicas?.restored()]),
    );
    return isOurs || !isWritten ? true : null;
  }

  /** Makes the replica that generates a response cancel it. Throws peer_gone if the replica does not reply. */
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
   * Makes the replica that generates a response end it. Resolves to true if that replica ended it. If that replica does not
   * reply, its later writes of this response are dropped.
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
   * Looks up a response by calling `read`, which returns null if the response is not in the store. Returns the result; null =
   * not stored. If the shared store was unavailable, a client may know an id before the replica that generated the response has
   * stored it. In this case, waits for that replica. Throws storage_unavailable if the response is still not stored.
   */
  async #read<T>(id: string, read: () => Promise<T | null>): Promise<T | null> {
    if (!isResponseId(id)) return null;
    // Pending saves are completed first, so that the store has the final state.
    await this.saver.readable(id);
    const found = await read();
    if (found !== null || this.#replicas === null || this.#running.has(id)) return found;
    for (const began = performance.now(); ; ) {
      const answers = await this.#replicas.ask(null, "settleResponse", { id }, true, true);
      // Read again even if no replica replied, because the response may have been stored before the replicas got the request.
      const later = await read();
      if (later !== null) return later;
      if (answers.length > 0 || performance.now() > began + READ_MS) throw notStoredYet(id);
      // Until all replicas are connected again, the replica with the response may have missed the request.
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

/** Returns whether an event precedes all output of a run, and occurs again if the run is restarted. */
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
  // Running responses of this process are in #running, and their stored state is not read. If the store names this process as
  // the owner, the response has therefore ended, but its final state could not be stored.
  const isInterrupted = interrupted !== null && (runner === "nobody" || runner === "here");
  return isInterrupted
    ? { status: "incomplete", isBackground, spans: interrupted }
    : { status, isBackground, spans: body };
}

/** Returns the state of a response in a list as clients see it. `run`: the run in this process; undefined if there is none. */
function listed(response: ListedResponse, run: ResponseRun | undefined): ListedResponse {
  if (run !== undefined) return { ...response, status: run.status, outputStart: run.outputStart };
  const isInterrupted = response.runner === "nobody" || response.runner === "here";
  return isInterrupted ? { ...response, status: "incomplete" } : response;
}

/** Returns whether a text sent by a client has the format of a response id. */
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
