// Model that runs in this browser: the engine in a web worker. One model is loaded at a time.
import { signal } from "@preact/signals";
import type { LoadedFacts, PageMessage, Problem, WorkerMessage } from "../../browser/messages.ts";
import { preference } from "../base/preference.ts";
import { eventsIn, type ServerEvent } from "../server/events.ts";
import { modelFile } from "./model-files.ts";

export type LocalState =
  | { readonly status: "none" }
  /** `fraction` of the load, 0..1. */
  | { readonly status: "loading"; readonly name: string; readonly fraction: number }
  | { readonly status: "loaded"; readonly name: string; readonly facts: LoadedFacts }
  | { readonly status: "failed"; readonly name: string; readonly problem: string };

/** Error of a request to a local model. */
export class LocalError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "LocalError";
  }
}

export const localModel = signal<LocalState>({ status: "none" });

const mostThreads = 16;
const cores = navigator.hardwareConcurrency;

/**
 * Number of compute threads. The browser counts hardware threads, of which two usually share a core. One thread per core is
 * the fastest.
 */
export const threads = preference(
  "localThreads",
  cores > 2 ? Math.min(Math.ceil(cores / 2), mostThreads) : cores,
  isCount,
);
/** Maximum length of a conversation in tokens. */
export const contextTokens = preference("localContext", 4096, isCount);

/** Why this page cannot run a model; null: it can. */
export function obstacle(): "notIsolated" | "noStorage" | null {
  if (!crossOriginIsolated) return "notIsolated";
  return navigator.storage?.getDirectory === undefined ? "noStorage" : null;
}

const prefix = "browser:";

/** Id of a local model in the settings of a conversation. */
export function localId(name: string): string {
  return prefix + name;
}

/** Returns the name of a local model; null: the id is that of a model of the server. */
export function localName(id: string): string | null {
  return id.startsWith(prefix) ? id.slice(prefix.length) : null;
}

interface Request {
  take(events: readonly ServerEvent[]): void;
  fail(problem: string): void;
}

/** The worker, and the requests that it answers. */
class Engine {
  readonly name: string;
  /** Settles when the model is loaded or cannot be loaded. */
  readonly loaded: Promise<void>;
  readonly #worker: Worker;
  readonly #requests = new Map<number, Request>();
  #next = 1;

  constructor(name: string, file: File) {
    this.name = name;
    this.#worker = new Worker(new URL("page-worker.js", document.baseURI), {
      type: "module",
      name: "page",
    });
    this.loaded = new Promise((resolve, reject) => {
      const fail = ({ message }: Pick<Problem, "message">): void => {
        this.#end(message);
        localModel.value = { status: "failed", name, problem: message };
        reject(new LocalError(message));
      };
      this.#worker.onerror = (event) => fail({ message: event.message });
      this.#worker.onmessage = ({ data }: MessageEvent<WorkerMessage>) => {
        if (data.kind === "progress") localModel.value = { status: "loading", name, fraction: data.fraction };
        else if (data.kind === "failed") fail(data.problem);
        else if (data.kind === "events") this.#requests.get(data.id)?.take(eventsIn(data.text));
        else if (data.kind === "refused") this.#requests.get(data.id)?.fail(data.problem.message);
        else {
          localModel.value = { status: "loaded", name, facts: data.facts };
          resolve();
        }
      };
    });
    localModel.value = { status: "loading", name, fraction: 0 };
    const model = { name, file, threads: threads.value, context: contextTokens.value };
    this.#send({ kind: "load", model });
  }

  /** Whether a request is in progress. */
  get isBusy(): boolean {
    return this.#requests.size > 0;
  }

  /** Yields the events of a response. Aborting `signal` ends the response with its last events. */
  async *respond(body: object, signal: AbortSignal): AsyncGenerator<readonly ServerEvent[]> {
    const id = this.#next++;
    let arrived: ServerEvent[] = [];
    let problem: string | null = null;
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
    this.#end("the model was unloaded");
  }

  #end(reason: string): void {
    this.#worker.terminate();
    for (const request of this.#requests.values()) request.fail(reason);
    this.#requests.clear();
  }

  #send(message: PageMessage): void {
    this.#worker.postMessage(message);
  }
}

let engine: Engine | null = null;
/** Ends when the earlier calls of loadLocal have ended, so that no two models are loaded at the same time. */
let turn: Promise<unknown> = Promise.resolve();

/** Loads a kept model, in place of the one that is loaded. Throws LocalError. */
export async function loadLocal(name: string): Promise<void> {
  await engineWith(name);
}

export function unloadLocal(): void {
  engine?.close();
  engine = null;
  localModel.value = { status: "none" };
}

/** Yields the events of a response of a local model, which is loaded if necessary. Throws LocalError. */
export async function* respondHere(
  name: string,
  body: object,
  signal: AbortSignal,
): AsyncGenerator<readonly ServerEvent[]> {
  const chosen = await engineWith(name);
  if (signal.aborted) throw new LocalError("stopped before it began");
  yield* chosen.respond(body, signal);
}

async function engineWith(name: string): Promise<Engine> {
  const mine = turn.then(async () => {
    if (engine?.name === name && localModel.value.status === "loaded") return engine;
    if (engine?.isBusy) throw new LocalError(`${engine.name} is answering: wait for the end, or stop it`);
    const file = await modelFile(name);
    if (file === null) throw new LocalError(`this browser keeps no model ${name}`);
    unloadLocal();
    engine = new Engine(name, file);
    await engine.loaded;
    return engine;
  });
  turn = mine.catch(() => {});
  return await mine;
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isInteger(value) && value > 0;
}
