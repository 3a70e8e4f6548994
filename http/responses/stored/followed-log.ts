// Followed log: reads the events of a background response that runs on another replica, as they are published. If that replica
// fails, the stream ends with a retryable error after the last published event. If the shared state is unavailable, the stream
// continues when it is available again.
import { setTimeout as sleep } from "node:timers/promises";
import type { FollowedEvents, Replicas } from "../../../actors/api/state/replicas.ts";
import type { FoundResponse, StoredResponses } from "../../../actors/api/stored-responses.ts";
import { joinBytes } from "../../../runtime/bytes.ts";
import { type ErrorRecord, ServerError } from "../../../runtime/errors.ts";
import type { StreamCodec } from "../../sse.ts";
import { DONE } from "../fold/event-text.ts";
import { checkStart, streamError } from "./event-log.ts";
import { eventsAfter, keptBytes } from "./kept-bytes.ts";

/** Milliseconds without events after which the reader checks whether the other replica still runs. */
const WAIT_MS = 1000;
/** Maximum milliseconds for which a stream waits for an unavailable shared state. */
const LOST_MS = 60_000;
const RETRY_MS = 500;

export interface FollowedResponse {
  readonly id: string;
  /** Sequence number of the last event that the client has; -1 if it has none. */
  readonly after: number;
  readonly replicas: Pick<Replicas, "follow">;
  readonly store: StoredResponses;
  /** Returns whether the response now runs on this replica, which has claimed it from the other one. */
  isRunningHere(): boolean;
  /** Finds the response. Throws not_found. */
  find(): Promise<FoundResponse>;
}

export class FollowedLog implements StreamCodec {
  readonly #response: FollowedResponse;
  /** Sequence number of the last event that was read. */
  #after: number;
  #text = "";
  #isEnded = false;
  #hasBegun = false;

  constructor(response: FollowedResponse) {
    this.#response = response;
    this.#after = response.after;
  }

  get isEnded(): boolean {
    return this.#isEnded;
  }

  /**
   * Yields when there is text for `encode`. Throws not_found if the first events are no longer stored, and peer_gone if the
   * other replica has failed.
   */
  async *batches(aborted: AbortSignal): AsyncGenerator<readonly never[]> {
    while (!aborted.aborted) {
      const events = await this.#next(aborted);
      if (aborted.aborted) return;
      if (events === null) {
        if (!(await this.#check())) continue;
      } else for (const added of events) this.#add(added);
      if (this.#text !== "") yield [];
    }
  }

  encode(): string {
    const text = this.#text;
    this.#text = "";
    return text;
  }

  fail(error: ErrorRecord): string {
    this.#isEnded = true;
    return streamError(error, this.#after + 1);
  }

  /**
   * Waits for the next events; null if none arrived within WAIT_MS. While the shared state is unavailable, retries for up to
   * LOST_MS.
   */
  async #next(aborted: AbortSignal): Promise<readonly FollowedEvents[] | null> {
    const { id, replicas } = this.#response;
    const until = performance.now() + LOST_MS;
    for (;;) {
      try {
        return await replicas.follow({ id, after: this.#after, waitMs: WAIT_MS });
      } catch (error) {
        const isTemporary = error instanceof ServerError && error.retryable;
        if (!isTemporary || !this.#hasBegun || performance.now() > until || aborted.aborted) throw error;
        await sleep(RETRY_MS);
      }
    }
  }

  #add({ first, next, text, isEnd }: FollowedEvents): void {
    if (this.#isEnded) return;
    if (first > this.#after + 1) {
      if (!this.#hasBegun) checkStart(this.#after, first);
      throw new ServerError(
        "reader_stalled",
        "events of the response were lost before they were read; ask for it again",
      );
    }
    this.#hasBegun = true;
    // Events that the client already has are removed.
    let shown = Buffer.from(text.buffer, text.byteOffset, text.byteLength).toString();
    for (let number = first; number <= this.#after && shown !== ""; number++) {
      shown = shown.slice(shown.indexOf("\n\n") + 2);
    }
    this.#text += shown;
    this.#after = Math.max(this.#after, next - 1);
    if (isEnd) this.#end();
  }

  /**
   * Checks the state of the response when no new events have arrived. Returns whether its stream has new events or has ended.
   * Throws peer_gone if the replica has failed.
   */
  async #check(): Promise<boolean> {
    // Checked before the lookup. Afterwards, the run may have ended although the lookup found it running.
    if (this.#response.isRunningHere()) return false;
    const found = await this.#found();
    if (found === null || found.runner === "elsewhere") return false;
    // Events may have been published between the last read and this check.
    const { id, replicas, store } = this.#response;
    const last = await replicas.follow({ id, after: this.#after, waitMs: 0 });
    if (last !== null) {
      for (const added of last) this.#add(added);
      return true;
    }
    if (found.runner !== null) {
      throw new ServerError(
        "peer_gone",
        `the replica that generated response '${id}' has failed; send the request again`,
      );
    }
    if (found.events === null && found.status === "incomplete") {
      const text = `no other replica could generate response '${id}' after its own had failed; send the request again`;
      throw new ServerError("peer_gone", text);
    }
    if (found.events === null) {
      throw new ServerError("not_found", `the events of response '${id}' are not stored`, { param: "stream" });
    }
    checkStart(this.#after, found.events.first);
    const pieces: Uint8Array[] = [];
    const count = this.#after + 1 - found.events.first;
    for await (const piece of eventsAfter(keptBytes(store, found.events.spans), count)) {
      pieces.push(typeof piece === "string" ? Buffer.from(piece) : piece);
    }
    this.#text += Buffer.from(joinBytes(pieces)).toString();
    this.#isEnded = true;
    return true;
  }

  /** Looks up the response; null if the shared state is unavailable. Throws not_found. */
  async #found(): Promise<FoundResponse | null> {
    try {
      return await this.#response.find();
    } catch (error) {
      if (error instanceof ServerError && error.retryable) return null;
      throw error;
    }
  }

  #end(): void {
    this.#text += DONE;
    this.#isEnded = true;
  }
}
