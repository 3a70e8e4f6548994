// Restarter: generates background responses again if their server ended before their first output (setting restart_background).
// The stored request is sent to the same route; its reply is discarded.
import { setTimeout as sleep } from "node:timers/promises";
import type { ClaimedResponse } from "../../actors/api/stored-responses.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { Log } from "../observe/log.ts";
import { nameClient } from "../server/client.ts";
import type { HttpReply, HttpRequest } from "../server/edge.ts";
import type { Responses } from "./responses.ts";

/** Milliseconds between two searches for responses to restart. Each replica varies the interval randomly by up to a quarter. */
const SEARCH_MS = 2000;
/**
 * Number of attempts to begin a claimed response, SEARCH_MS apart, if the error is temporary. After these attempts, the
 * response is released for other servers.
 */
const MAX_ATTEMPTS = 10;

export interface RestarterOptions {
  readonly responses: Responses;
  readonly log: Log;
  /** Returns whether responses can be generated. They cannot while models are being loaded. */
  isReady(): boolean;
  /** Creates the response. Rejects if the response could not begin. */
  create(request: HttpRequest, reply: HttpReply, claimed: ClaimedResponse): Promise<void>;
}

export class Restarter {
  readonly #options: RestarterOptions;
  #timer: NodeJS.Timeout | null = null;
  /** Claimed responses that have neither begun nor been released or given up. */
  readonly #waiting = new Set<ClaimedResponse>();
  /** Those of them that cannot be generated, and whose final state is not stored yet. */
  readonly #failed = new Set<ClaimedResponse>();
  #isStopped = false;

  constructor(options: RestarterOptions) {
    this.#options = options;
    this.#timer = setTimeout(() => void this.#search(), 0).unref();
  }

  /** Claims no more responses. Responses that are already claimed still begin. */
  stop(): void {
    this.#isStopped = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
  }

  async #search(): Promise<void> {
    const { responses, log, isReady } = this.#options;
    try {
      for (const claimed of this.#failed) await this.#giveUp(claimed);
      const waitingIds = [...this.#waiting].map(({ id }) => id);
      if (isReady()) for (const claimed of await responses.claim(waitingIds)) void this.#restart(claimed);
    } catch (error) {
      // A ServerError means that the store is unavailable, which the store's client logs once. The next search finds the
      // responses that this search has missed.
      if (!(error instanceof ServerError)) log.error({ err: error }, "the search for responses to restart failed");
    }
    if (this.#isStopped) return;
    this.#timer = setTimeout(() => void this.#search(), SEARCH_MS * (0.75 + Math.random() / 2)).unref();
  }

  async #restart(claimed: ClaimedResponse): Promise<void> {
    const { log } = this.#options;
    const { id, count } = claimed;
    log.warn({ response: id, restarts: count }, "a background response whose server ended is generated again");
    this.#waiting.add(claimed);
    const error = await this.#begin(claimed);
    if (error === null) {
      this.#waiting.delete(claimed);
      return;
    }
    log.error({ response: id, err: error }, "a background response could not be generated again");
    this.#failed.add(claimed);
    // If the store is unavailable, the next search tries again.
    await this.#giveUp(claimed).catch(() => {});
  }

  /**
   * Creates a claimed response. Resolves to null if it was created or released for another server, or to the error if it can
   * never be created.
   */
  async #begin(claimed: ClaimedResponse): Promise<unknown> {
    const { responses, create, isReady } = this.#options;
    for (let attempt = 1; ; ) {
      try {
        await create(requestOf(claimed), unreadReply, claimed);
        return null;
      } catch (error) {
        if (error instanceof ServerError && error.code === "draining") {
          // This server is stopping, so another server must generate the response.
          await responses.release(claimed.id);
          return null;
        }
        if (!(error instanceof ServerError) || !error.retryable) return error;
        // The error is temporary, so another server, or this one later, may be able to generate the response.
        if (attempt >= MAX_ATTEMPTS && (await responses.release(claimed.id))) return null;
        // Attempts while the store is unavailable do not count.
        if (isReady() && error.code !== "storage_unavailable") attempt++;
        do await sleep(SEARCH_MS, undefined, { ref: false });
        while (responses.isStoreLost);
      }
    }
  }

  async #giveUp(claimed: ClaimedResponse): Promise<void> {
    await this.#options.responses.giveUp(claimed.id);
    this.#failed.delete(claimed);
    this.#waiting.delete(claimed);
  }
}

function requestOf({ client, request }: ClaimedResponse): HttpRequest {
  // The body is copied, because a text worker may take over its memory, and the request may be retried.
  let body = new Uint8Array(request);
  const made: HttpRequest = {
    method: "POST",
    path: "/v1/responses",
    query: "",
    headers: new Map([["content-type", "application/json"]]),
    get body() {
      return body;
    },
    bodyBytes: request.byteLength,
    address: "another server",
    signal: new AbortController().signal,
    releaseBody: () => {
      body = new Uint8Array(0);
    },
    holdBody: () => () => {},
  };
  nameClient(made, client);
  return made;
}

/** Reply that discards the response. */
const unreadReply: HttpReply = {
  send: () => {},
  stream: () => ({ write: () => true, keepOpen: () => {}, drained: async () => {}, end: () => {}, abort: () => {} }),
};
