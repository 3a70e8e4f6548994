// Restarter: generates background responses again whose server has ended before their first output (restart_background). Each is
// a request of the same route, with the stored body, whose reply nobody reads.
import { setTimeout as sleep } from "node:timers/promises";
import type { ClaimedResponse } from "../../actors/api/stored-responses.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { Log } from "../observe/log.ts";
import { nameClient } from "../server/client.ts";
import type { HttpReply, HttpRequest } from "../server/edge.ts";
import type { Responses } from "./responses.ts";

/** Milliseconds between two searches for such responses; each replica varies them by a quarter. */
const SEARCH_MS = 2000;
/** Attempts to begin a response that this server has claimed, while the error is a passing one. */
const MAX_ATTEMPTS = 10;

export interface RestarterOptions {
  readonly responses: Responses;
  readonly log: Log;
  /** Whether responses can be generated; false while the models load. */
  isReady(): boolean;
  /** Creates the response. Rejects if it could not begin. */
  create(request: HttpRequest, reply: HttpReply, claimed: ClaimedResponse): Promise<void>;
}

export class Restarter {
  readonly #options: RestarterOptions;
  #timer: NodeJS.Timeout | null = null;
  #isStopped = false;

  constructor(options: RestarterOptions) {
    this.#options = options;
    this.#timer = setTimeout(() => void this.#search(), 0).unref();
  }

  stop(): void {
    this.#isStopped = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
  }

  async #search(): Promise<void> {
    const { responses, log, isReady } = this.#options;
    try {
      if (isReady()) for (const claimed of await responses.claim()) void this.#restart(claimed);
    } catch (error) {
      // The loss of the store is logged once by its client; the next search finds what this one has missed.
      if (!(error instanceof ServerError)) log.error({ err: error }, "the search for responses to restart failed");
    }
    if (this.#isStopped) return;
    this.#timer = setTimeout(() => void this.#search(), SEARCH_MS * (0.75 + Math.random() / 2)).unref();
  }

  async #restart(claimed: ClaimedResponse): Promise<void> {
    const { responses, log, create } = this.#options;
    const { id, count } = claimed;
    log.warn({ response: id, restarts: count }, "a background response whose server ended is generated again");
    for (let attempt = 1; ; attempt++) {
      try {
        await create(requestOf(claimed), unreadReply, claimed);
        return;
      } catch (error) {
        // This server stops too; the response waits for the next one.
        if (this.#isStopped || (error instanceof ServerError && error.code === "draining")) return;
        if (error instanceof ServerError && error.retryable && attempt < MAX_ATTEMPTS) {
          await sleep(SEARCH_MS);
          continue;
        }
        log.error({ response: id, err: error }, "a background response could not be generated again");
        await responses.giveUp(id).catch(() => {});
        return;
      }
    }
  }
}

function requestOf({ client, request }: ClaimedResponse): HttpRequest {
  let body = request;
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

/** Reply to nobody. */
const unreadReply: HttpReply = {
  send: () => {},
  stream: () => ({ write: () => true, keepOpen: () => {}, drained: async () => {}, end: () => {}, abort: () => {} }),
};
