// Engine of a local model: manages the web worker that runs the model, its requests, and the callers that use it.
import type { GpuModelToLoad, LoadedFacts, ModelToLoad, PageMessage, WorkerMessage } from "../../browser/messages.ts";
import { t } from "../base/language.ts";
import { eventsIn, type ServerEvent } from "../server/events.ts";

/** State of the local model. `id`: id of the model. */
export type LocalState =
  | { readonly status: "none" }
  /** `fraction`: part of the model that is loaded, from 0 to 1. */
  | { readonly status: "loading"; readonly id: string; readonly fraction: number }
  | { readonly status: "loaded"; readonly id: string; readonly facts: LoadedFacts }
  | { readonly status: "failed"; readonly id: string; readonly problem: string };

/** Script of the worker for a model, and the model to load. */
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

/** Worker that runs a local model, with its requests in progress. */
export class Engine {
  readonly id: string;
  /** Resolves when the model is loaded. Rejects if it cannot be loaded, or if it is unloaded earlier. */
  readonly loaded: Promise<void>;
  readonly #worker: Worker;
  readonly #onState: (state: LocalState) => void;
  readonly #requests = new Map<number, Request>();
  #next = 1;
  #hasEnded = false;
  /** Number of callers that have reserved the engine. It is replaced by the engine of another model only at 0. */
  #users = 0;
  #onIdle: () => void = () => {};
  #refuse: (error: LocalError) => void = () => {};

  /** `onState`: called with each state while the model loads, and when the engine fails. */
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
    // This handler only prevents an unhandled rejection. The error is shown by the caller that waits for the model, and in the
    // model's state.
    this.loaded.catch(() => {});
    onState({ status: "loading", id, fraction: 0 });
    this.#send({ kind: "load", model });
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** Reserves the engine for a caller until release(). */
  reserve(): void {
    this.#users++;
  }

  release(): void {
    this.#users--;
    if (this.#users === 0) this.#onIdle();
  }

  /** Resolves when no caller has reserved the engine. Only one caller may wait at a time. */
  async idle(): Promise<void> {
    if (this.#users === 0 || this.#hasEnded) return;
    await new Promise<void>((resolve) => {
      this.#onIdle = resolve;
    });
  }

  /** Yields the events of a response. After `signal` is aborted, yields its final events and ends. */
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
      // The caller may stop reading before the response has ended.
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
