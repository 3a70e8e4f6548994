// Engine of a local model: the web worker that runs the model, the requests that it answers, and its users.
import type { GpuModelToLoad, LoadedFacts, ModelToLoad, PageMessage, WorkerMessage } from "../../browser/messages.ts";
import { t } from "../base/language.ts";
import { eventsIn, type ServerEvent } from "../server/events.ts";

/** State of the local model. `id`: that of the model that is loaded. */
export type LocalState =
  | { readonly status: "none" }
  /** `fraction` of the load, 0..1. */
  | { readonly status: "loading"; readonly id: string; readonly fraction: number }
  | { readonly status: "loaded"; readonly id: string; readonly facts: LoadedFacts }
  | { readonly status: "failed"; readonly id: string; readonly problem: string };

/** A model to load, and the script of the worker that runs it. */
export type EngineStart =
  | { readonly script: "page-worker.js"; readonly model: ModelToLoad }
  | { readonly script: "gpu-worker.js"; readonly model: GpuModelToLoad };

/** Error of a request to a local model. */
export class LocalError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "LocalError";
  }
}

interface Request {
  take(events: readonly ServerEvent[]): void;
  fail(problem: string): void;
}

/** The worker, and the requests that it answers. */
export class Engine {
  readonly id: string;
  /** Settles when the model is loaded, cannot be loaded, or is unloaded before that. */
  readonly loaded: Promise<void>;
  readonly #worker: Worker;
  readonly #onState: (state: LocalState) => void;
  readonly #requests = new Map<number, Request>();
  #next = 1;
  #hasEnded = false;
  /** Number of users who have the engine. Only an engine without users makes room for another one. */
  #users = 0;
  #onIdle: () => void = () => {};
  #refuse: (error: LocalError) => void = () => {};

  /** `onState`: called with each state of the load, and when the engine fails. */
  constructor(id: string, { script, model }: EngineStart, onState: (state: LocalState) => void) {
    this.id = id;
    this.#onState = onState;
    this.#worker = new Worker(new URL(script, document.baseURI), { type: "module", name: "page" });
    this.loaded = new Promise((resolve, reject) => {
      this.#refuse = reject;
      this.#worker.onerror = ({ message }) => this.#fail(message || t("engineNotLoaded"));
      this.#worker.onmessage = ({ data }: MessageEvent<WorkerMessage>) => {
        if (data.kind === "progress") onState({ status: "loading", id, fraction: data.fraction });
        else if (data.kind === "failed") this.#fail(data.problem.message);
        else if (data.kind === "events") this.#requests.get(data.id)?.take(eventsIn(data.text));
        else if (data.kind === "refused") this.#requests.get(data.id)?.fail(data.problem.message);
        else {
          onState({ status: "loaded", id, facts: data.facts });
          resolve();
        }
      };
    });
    // The error is shown by the page that waits for the load, and as the state of the model.
    this.loaded.catch(() => {});
    onState({ status: "loading", id, fraction: 0 });
    this.#send({ kind: "load", model });
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** Keeps the engine for a user until release(). */
  reserve(): void {
    this.#users++;
  }

  release(): void {
    this.#users--;
    if (this.#users === 0) this.#onIdle();
  }

  /** Resolves when nobody uses the engine. One caller at a time. */
  async idle(): Promise<void> {
    if (this.#users === 0 || this.#hasEnded) return;
    await new Promise<void>((resolve) => {
      this.#onIdle = resolve;
    });
  }

  /** Yields the events of a response. Aborting `signal` ends the response with its last events. */
  async *respond(body: object, signal: AbortSignal): AsyncGenerator<readonly ServerEvent[]> {
    const id = this.#next++;
    let arrived: ServerEvent[] = [];
    let problem: string | null = this.#hasEnded ? t("modelUnloaded") : null;
    let wake = (): void => {};
    this.#requests.set(id, {
      take: (events) => {
        arrived.push(...events);
        wake();
      },
      fail: (message) => {
        problem = message;
        wake();
      },
    });
    const stop = (): void => this.#send({ kind: "stop", id });
    signal.addEventListener("abort", stop);
    try {
      this.#send({ kind: "respond", id, body });
      for (;;) {
        if (arrived.length > 0) {
          const events = arrived;
          arrived = [];
          yield events;
        } else if (problem !== null) throw new LocalError(problem);
        else {
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
        }
      }
    } finally {
      signal.removeEventListener("abort", stop);
      this.#requests.delete(id);
      // The reader may leave before the end of the response.
      stop();
    }
  }

  close(): void {
    this.#end(t("modelUnloaded"));
  }

  #fail(message: string): void {
    if (this.#hasEnded) return;
    this.#end(message);
    this.#onState({ status: "failed", id: this.id, problem: message });
  }

  #end(reason: string): void {
    this.#hasEnded = true;
    this.#worker.terminate();
    this.#refuse(new LocalError(reason));
    for (const request of this.#requests.values()) request.fail(reason);
    this.#onIdle();
  }

  #send(message: PageMessage): void {
    this.#worker.postMessage(message);
  }
}
