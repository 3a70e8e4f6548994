// Owns the responses that are generated now, and the way to those that are kept: one owner of each at a time, so that no change
// is lost. Made by the app; used by the routes of this folder.
import type { FoundResponse, StoredResponses, StoredText } from "../../actors/stored-responses.ts";
import type { GenerateEvent } from "../../engines/chat.ts";
import { ServerError, toErrorRecord } from "../../runtime/errors.ts";
import type { Log } from "../log.ts";
import { EventLog } from "./event-log.ts";
import type { NamedItem } from "./input-items.ts";
import { interruptedResource } from "./resource.ts";
import { type ResponsePlan, ResponseRun, type RunOwner } from "./response-run.ts";
import { ResponseSaver } from "./response-saver.ts";

/** JSON text of a response; in pieces where it is made while it is sent. */
export type ResponseText = StoredText | Iterable<string>;

/** Most bytes of the requests that are generated in the background at once: each is held until its response has ended. */
export const MAX_BACKGROUND_BYTES = 256 * 2 ** 20;

export interface ResponsesOptions {
  readonly store: StoredResponses;
  readonly log: Log;
  /** Most responses that run in the background at once. */
  readonly maxBackground: number;
  readonly maxBackgroundBytes?: number;
  /** Until what could not be kept is tried once more. */
  readonly saveRetryMs?: number;
}

export class Responses implements RunOwner {
  readonly saver: ResponseSaver;
  readonly #options: ResponsesOptions;
  readonly #running = new Map<string, ResponseRun>();
  /** Bytes of the request of each run in the background. */
  readonly #background = new Map<string, number>();
  #backgroundBytes = 0;
  #isStopping = false;

  constructor(options: ResponsesOptions) {
    this.#options = options;
    this.saver = new ResponseSaver(options.store, options.log, options.saveRetryMs);
  }

  /** Begins a response whose generation its client waits for, who drives it. */
  begin(plan: ResponsePlan): ResponseRun {
    const run = new ResponseRun(plan, this);
    // What is not kept is not found either.
    if (plan.isStored) this.#running.set(run.id, run);
    return run;
  }

  /**
   * Begins one that nobody need wait for, whose request has so many bytes. To be given to `pump` next. Throws queue_full, and
   * why it cannot be kept.
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

  /** Reads a generation that no client reads. Never rejects. Holds nothing else: not the request, which may be long. */
  async pump(run: ResponseRun, events: AsyncIterable<readonly GenerateEvent[]>): Promise<void> {
    try {
      for await (const batch of events) {
        run.encode(batch);
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

  /** The resource as JSON. Throws not_found. */
  async body(id: string): Promise<ResponseText> {
    const run = this.#running.get(id);
    return run === undefined ? await this.#endedBody(id) : run.json();
  }

  /** Deletes one, and ends it where it is still generated. Throws not_found. */
  async delete(id: string): Promise<void> {
    const run = this.#running.get(id);
    run?.forget();
    this.#running.delete(id);
    // What is on its way would come after.
    await this.saver.settled(id);
    const wasKept = isResponseId(id) && (await this.#options.store.delete(id));
    if (run === undefined && !wasKept) throw unknownResponse(id);
  }

  /** Stops one that runs in the background; of one that was stopped before, says so again. Throws not_found. */
  async cancel(id: string): Promise<ResponseText> {
    const run = this.#running.get(id);
    if (run?.isBackground) {
      run.interrupt("cancelled");
      return run.json();
    }
    if (run !== undefined) throw notCancellable(id, "does not run in the background");
    const body = await this.#endedBody(id);
    const { status, background } = JSON.parse(textOf(body)) as {
      readonly status: string;
      readonly background: boolean;
    };
    if (status === "cancelled") return body;
    throw notCancellable(id, background ? `is ${status}` : "does not run in the background");
  }

  /** The events of a response that runs, or has run, in the background and as a stream. Throws not_found. */
  async events(id: string): Promise<EventLog> {
    const run = this.#running.get(id);
    if (run?.log) return run.log;
    const found = run === undefined ? await this.#found(id) : null;
    if (found?.events) return EventLog.ended(found.events);
    const isLost = found !== null && found.runner !== null;
    const text = isLost
      ? `the server that generated response '${id}' ended before its events were kept`
      : `the events of response '${id}' are not kept: they are of one created with background: true and stream: true`;
    throw new ServerError("not_found", text, { param: "stream" });
  }

  /** What came with a request, and what was answered. Throws not_found. */
  async items(id: string): Promise<readonly NamedItem[]> {
    return JSON.parse((await this.#found(id)).items) as readonly NamedItem[];
  }

  /** What came with a request. Throws not_found. */
  async inputItems(id: string): Promise<readonly NamedItem[]> {
    const { items, inputCount } = await this.#found(id);
    return (JSON.parse(items) as readonly NamedItem[]).slice(0, inputCount);
  }

  /** The items of a response and of all it goes on from. Throws not_found, conflict, invalid_value. */
  async history(id: string): Promise<readonly string[]> {
    if (!isResponseId(id)) throw unknownResponse(id, "previous_response_id");
    await this.saver.settled(id);
    // As they are now: one that ends while the store reads may have been read before.
    const generated = new Set([...this.#running.keys(), ...this.saver.pendingIds()]);
    const turns = await this.#options.store.history(id);
    const running = turns.find(
      (turn) => turn.runner === "elsewhere" || (turn.runner === "here" && generated.has(turn.id)),
    );
    if (running === undefined) return turns.map(({ items }) => items);
    const text = `the response '${running.id}' is still in progress; wait until it has ended, or cancel it`;
    throw new ServerError("conflict", text, { param: "previous_response_id" });
  }

  /** Ends what runs in the background, from now on too. */
  interruptBackground(): void {
    this.#isStopping = true;
    const background = [...this.#running.values()].filter(({ isBackground }) => isBackground);
    for (const run of background) run.interrupt("incomplete");
    const count = background.length;
    if (count > 0)
      this.#options.log.warn({ count }, "background responses were interrupted, and are kept as incomplete");
  }

  ended(run: ResponseRun): void {
    this.#running.delete(run.id);
    this.#backgroundBytes -= this.#background.get(run.id) ?? 0;
    this.#background.delete(run.id);
  }

  /** Of one that does not run here. Throws not_found. */
  async #endedBody(id: string): Promise<StoredText> {
    const found = await this.#found(id);
    // Of this process it would run here: its end could not be kept.
    const isInterrupted = found.runner === "nobody" || found.runner === "here";
    return isInterrupted ? JSON.stringify(interruptedResource(textOf(found.body))) : found.body;
  }

  /** Throws not_found. */
  async #found(id: string): Promise<FoundResponse> {
    // The store is asked after it has been told: how a response ended is not missed.
    await this.saver.settled(id);
    const found = isResponseId(id) ? await this.#options.store.get(id) : null;
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
        ? `${maxBackground} responses run in the background already (max_background_responses)`
        : this.#backgroundBytes + requestBytes > maxBackgroundBytes
          ? `the requests of responses in the background may have ${maxBackgroundBytes} bytes in all, which this one of ${requestBytes} goes beyond`
          : null;
    if (what !== null) throw new ServerError("queue_full", `${what}; try again when some have ended`);
  }
}

const unexpected = { code: "internal", message: "internal error; the server's log says more" } as const;

/** What the store may be asked for: a client may send anything. */
function isResponseId(id: string): boolean {
  return /^resp_[0-9a-f]{32}$/.test(id);
}

function notCancellable(id: string, state: string): ServerError {
  const text = `Response with ID '${id}' ${state}: only one that is queued or in progress in the background can be cancelled`;
  return new ServerError("not_found", text, { param: "response_id" });
}

function textOf(text: StoredText): string {
  return typeof text === "string" ? text : new TextDecoder().decode(text);
}

function unknownResponse(id: string, param = "response_id"): ServerError {
  return new ServerError("not_found", `Response with ID '${id.slice(0, 100)}' not found`, { param });
}
