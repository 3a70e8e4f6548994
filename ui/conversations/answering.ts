// Answering: gets an answer from the server or from a model in this browser, and stores it while it arrives. One tab runs an
// answer. If that tab is closed, another tab resumes the answer from the events that the server has stored.
import { withFreeLock, withLock } from "../base/lock.ts";
import { LocalError } from "../local/engine.ts";
import { localName, respondHere } from "../local/local-model.ts";
import { ask, request, ServerError } from "../server/client.ts";
import { eventsOf, type ServerEvent } from "../server/events.ts";
import { AnswerFold } from "./fold.ts";
import type { Answer } from "./records.ts";

/** Pauses in milliseconds before an answer is read again after the connection broke. The last pause is repeated. */
const pausesMs = [250, 1000, 3000, 10_000];
const shownEveryMs = 40;
const storedEveryMs = 500;

export interface AnsweringOptions {
  /** Answer to start or to resume. */
  readonly answer: Answer;
  /** Request body; null: the server has already started the answer. */
  readonly body: object | null;
  readonly onChange: (answer: Answer) => void;
  readonly onStore: (answer: Answer) => Promise<void>;
  /** Aborted when the user stops the answer. */
  readonly signal: AbortSignal;
}

/** Returns the name of an answer's lock, which the tab that runs the answer holds. */
export function answerLock(id: string): string {
  return `troupe.answer.${id}`;
}

/**
 * Runs an answer to its end while holding the lock of the answer. If another tab holds the lock, waits for it if `isWaiting`,
 * otherwise does nothing.
 */
export async function runAnswer(options: AnsweringOptions, isWaiting: boolean): Promise<void> {
  const name = answerLock(options.answer.id);
  await (isWaiting ? withLock : withFreeLock)(name, () => new Answering(options).run());
}

class Answering {
  readonly #options: AnsweringOptions;
  readonly #fold: AnswerFold;
  #shownAt = 0;
  #storedAt = performance.now();
  #storeTimer: ReturnType<typeof setTimeout> | null = null;
  /** Whether the stored answer contains the response id, without which it cannot be resumed. */
  #isNamed = false;
  #timer: ReturnType<typeof setTimeout> | null = null;
  #storing: Promise<void> = Promise.resolve();
  #isCancelled = false;

  constructor(options: AnsweringOptions) {
    this.#options = options;
    this.#fold = new AnswerFold(options.answer);
  }

  async run(): Promise<void> {
    const { signal } = this.#options;
    const stop = (): void => void this.#cancel();
    signal.addEventListener("abort", stop);
    try {
      for (let failures = 0; this.#isRunning; failures++) {
        if (failures > 0) await pause(pausesMs[Math.min(failures, pausesMs.length) - 1] ?? 0, signal);
        const before = this.#fold.answer.sequence;
        await this.#read();
        if (this.#fold.answer.sequence > before) failures = 0;
      }
    } finally {
      signal.removeEventListener("abort", stop);
      if (this.#timer !== null) clearTimeout(this.#timer);
      this.#show();
      await this.#store();
    }
  }

  get #isRunning(): boolean {
    return this.#fold.answer.status === "running";
  }

  /** Reads the response until it ends or the connection breaks. */
  async #read(): Promise<void> {
    try {
      for await (const events of await this.#open()) {
        for (const event of events) this.#fold.take(event);
        this.#changed();
        // The user may have stopped the answer before the response id arrived.
        if (this.#options.signal.aborted) {
          if (this.#isRunning) void this.#cancel();
          else this.#fold.stop("cancelled", "");
        }
        if (!this.#isRunning) return;
      }
    } catch (error) {
      this.#failed(error);
    }
  }

  async #open(): Promise<AsyncIterable<readonly ServerEvent[]>> {
    const { responseId, sequence, model } = this.#fold.answer;
    const { body, signal } = this.#options;
    if (localName(model) !== null) {
      if (responseId !== "" || body === null) throw new LocalError("the page was closed during the answer");
      return respondHere(model, body, signal);
    }
    if (responseId === "") {
      if (body === null) throw new ServerError("the page was closed before the server began the answer", "lost", 410);
      return eventsOf(await request("v1/responses", { method: "POST", body }));
    }
    const after = sequence < 0 ? "" : `&starting_after=${sequence}`;
    return eventsOf(await request(`v1/responses/${responseId}?stream=true${after}`));
  }

  /**
   * Handles an error of #read. Ends the answer if the user has stopped it, if the model runs in this browser, if the server rejects the
   * request, or if no response id is known. In all other cases the answer continues, and the caller calls #read again.
   */
  #failed(error: unknown): void {
    const isRefused = error instanceof ServerError && error.status >= 400 && error.status < 500 && error.status !== 429;
    if (this.#options.signal.aborted) this.#fold.stop("cancelled", "");
    else if (isRefused || error instanceof LocalError || this.#fold.answer.responseId === "") {
      this.#fold.stop("failed", error instanceof Error ? error.message : String(error));
    }
    this.#changed();
  }

  async #cancel(): Promise<void> {
    const { responseId, model } = this.#fold.answer;
    // A model in this browser is stopped by the signal, without a request to the server.
    if (responseId === "" || this.#isCancelled || localName(model) !== null) return;
    this.#isCancelled = true;
    try {
      await ask(`v1/responses/${responseId}/cancel`, { method: "POST" });
    } catch {
      this.#fold.stop("cancelled", "");
      this.#changed();
    }
  }

  /**
   * Schedules updates: the answer is shown at most every `shownEveryMs` and stored at most every `storedEveryMs`. It is also
   * stored as soon as the response id is known.
   */
  #changed(): void {
    const now = performance.now();
    if (!this.#isNamed && this.#fold.answer.responseId !== "") {
      this.#isNamed = true;
      void this.#store();
    }
    this.#storeTimer ??= setTimeout(() => void this.#store(), Math.max(0, storedEveryMs - (now - this.#storedAt)));
    if (this.#timer !== null) return;
    this.#timer = setTimeout(() => this.#show(), Math.max(0, shownEveryMs - (now - this.#shownAt)));
  }

  #show(): void {
    this.#timer = null;
    this.#shownAt = performance.now();
    this.#options.onChange(this.#fold.answer);
  }

  #store(): Promise<void> {
    if (this.#storeTimer !== null) clearTimeout(this.#storeTimer);
    this.#storeTimer = null;
    this.#storedAt = performance.now();
    const { answer } = this.#fold;
    this.#storing = this.#storing.then(() => this.#options.onStore(answer));
    return this.#storing;
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
