// Model that runs in this browser: the engine in a web worker. One model is loaded at a time.
import { signal } from "@preact/signals";
import type { LoadedFacts, PageMessage, WorkerMessage } from "../../browser/messages.ts";
import { t } from "../base/language.ts";
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
  const writes = globalThis.FileSystemFileHandle?.prototype.createWritable !== undefined;
  return navigator.storage?.getDirectory !== undefined && writes ? null : "noStorage";
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
  /** Settles when the model is loaded, cannot be loaded, or is unloaded before that. */
  readonly loaded: Promise<void>;
  readonly #worker: Worker;
  readonly #requests = new Map<number, Request>();
  #next = 1;
  #hasEnded = false;
  /** Number of users who have the engine. Only an engine without users makes room for another one. */
  #users = 0;
  #onIdle: () => void = () => {};
  #refuse: (error: LocalError) => void = () => {};

  constructor(name: string, file: File) {
    this.name = name;
    this.#worker = new Worker(new URL("page-worker.js", document.baseURI), { type: "module", name: "page" });
    this.loaded = new Promise((resolve, reject) => {
      this.#refuse = reject;
      this.#worker.onerror = ({ message }) => this.#fail(message || t("engineNotLoaded"));
      this.#worker.onmessage = ({ data }: MessageEvent<WorkerMessage>) => {
        if (data.kind === "progress") localModel.value = { status: "loading", name, fraction: data.fraction };
        else if (data.kind === "failed") this.#fail(data.problem.message);
        else if (data.kind === "events") this.#requests.get(data.id)?.take(eventsIn(data.text));
        else if (data.kind === "refused") this.#requests.get(data.id)?.fail(data.problem.message);
        else {
          localModel.value = { status: "loaded", name, facts: data.facts };
          resolve();
        }
      };
    });
    // The error is shown by whoever waits for the load, and as the state of the model.
    this.loaded.catch(() => {});
    localModel.value = { status: "loading", name, fraction: 0 };
    const model = { name, file, threads: threads.value, context: contextTokens.value };
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
    localModel.value = { status: "failed", name: this.name, problem: message };
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

let engine: Engine | null = null;
/** Ends when the earlier calls of reserved() have ended, so that models are loaded one after another. */
let turn: Promise<unknown> = Promise.resolve();

/** Loads a kept model, when nobody uses the one that is loaded. Throws LocalError. */
export async function loadLocal(name: string): Promise<void> {
  (await reserved(name)).release();
}

/** Unloads the model, or ends its load. Its answers end. */
export function unloadLocal(): void {
  engine?.close();
  engine = null;
  localModel.value = { status: "none" };
}

/**
 * Yields the events of a response of a local model, which is loaded if necessary. Waits while another local model answers. Throws
 * LocalError.
 */
export async function* respondHere(
  name: string,
  body: object,
  signal: AbortSignal,
): AsyncGenerator<readonly ServerEvent[]> {
  const chosen = await unlessAborted(reserved(name), signal);
  try {
    yield* chosen.respond(body, signal);
  } finally {
    chosen.release();
  }
}

/** Returns the engine with a model, loaded and reserved for the caller. */
async function reserved(name: string): Promise<Engine> {
  const problem = obstacle();
  if (problem !== null) throw new LocalError(t(problem));
  const mine = turn.then(async () => {
    if (engine === null || engine.hasEnded || engine.name !== name) {
      const file = await modelFile(name);
      if (file === null) throw new LocalError(t("modelNotKept", { name }));
      await engine?.idle();
      unloadLocal();
      engine = new Engine(name, file);
    }
    const chosen = engine;
    await chosen.loaded;
    chosen.reserve();
    return chosen;
  });
  turn = mine.catch(() => {});
  return await mine;
}

/** Waits for an engine. If `signal` is aborted before, throws, and releases the engine when it comes. */
async function unlessAborted(coming: Promise<Engine>, signal: AbortSignal): Promise<Engine> {
  const stopped = new Promise<never>((_resolve, reject) => {
    const stop = (): void => reject(new LocalError("stopped"));
    if (signal.aborted) stop();
    else signal.addEventListener("abort", stop, { once: true });
  });
  stopped.catch(() => {});
  try {
    return await Promise.race([coming, stopped]);
  } catch (error) {
    coming.then((late) => late.release()).catch(() => {});
    throw error;
  }
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isInteger(value) && value > 0;
}
