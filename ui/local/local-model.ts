// Local model: the model that runs in this browser. Only one model is loaded at a time, so answers of different models are
// generated one after another.
import { signal } from "@preact/signals";
import { t } from "../base/language.ts";
import { preference } from "../base/preference.ts";
import type { ServerEvent } from "../server/events.ts";
import { Engine, type EngineStart, LocalError, type LocalState } from "./engine.ts";
import { modelFile } from "./gguf-files.ts";
import { gpuObstacle } from "./gpu.ts";
import { gpuModelFiles } from "./gpu-files.ts";
import { canStore } from "./model-storage.ts";

export const localModel = signal<LocalState>({ status: "none" });

const mostThreads = 16;
const cores = navigator.hardwareConcurrency;

/**
 * Number of compute threads. By default one thread per core, which is the fastest. The browser reports hardware threads, of
 * which two usually share a core.
 */
export const threads = preference(
  "localThreads",
  cores > 2 ? Math.min(Math.ceil(cores / 2), mostThreads) : cores,
  isCount,
);
/** Maximum length of a conversation in tokens. */
export const contextTokens = preference("localContext", 4096, isCount);

/** Returns why this page cannot run a model on the CPU; null if it can. */
export function obstacle(): "notIsolated" | "noStorage" | null {
  if (!crossOriginIsolated) return "notIsolated";
  return canStore() ? null : "noStorage";
}

/** Prefixes of the ids of local models, by device. */
const prefixes = { cpu: "browser:", gpu: "gpu:" };

export type Device = keyof typeof prefixes;

export interface LocalName {
  readonly device: Device;
  readonly name: string;
}

/** Returns the id of a local model, for the settings of a conversation. */
export function localId(name: string, device: Device = "cpu"): string {
  return prefixes[device] + name;
}

/** Returns the name and device of a local model; null if the id is that of a model on the server. */
export function localName(id: string): LocalName | null {
  for (const device of ["cpu", "gpu"] as const) {
    if (id.startsWith(prefixes[device])) return { device, name: id.slice(prefixes[device].length) };
  }
  return null;
}

let engine: Engine | null = null;
/** Resolves when all earlier calls of reserved() have ended, so that models are loaded one after another. */
let turn: Promise<unknown> = Promise.resolve();

/** Loads a stored model as soon as the currently loaded model is not in use. Throws LocalError. */
export async function loadLocal(id: string): Promise<void> {
  (await reserved(id)).release();
}

/** Unloads the model, or cancels its loading. Answers in progress end. */
export function unloadLocal(): void {
  engine?.close();
  engine = null;
  localModel.value = { status: "none" };
}

/**
 * Yields the events of a local model's response. Loads the model if necessary, after waiting until no other model is in use.
 * Throws LocalError.
 */
export async function* respondHere(
  id: string,
  body: object,
  signal: AbortSignal,
): AsyncGenerator<readonly ServerEvent[]> {
  const chosen = await unlessAborted(reserved(id), signal);
  try {
    yield* chosen.respond(body, signal);
  } finally {
    chosen.release();
  }
}

/** Loads a model if necessary, and returns its engine, reserved for the caller. */
async function reserved(id: string): Promise<Engine> {
  const mine = turn.then(async () => {
    if (engine === null || engine.hasEnded || engine.id !== id) {
      const start = await startOf(id);
      await engine?.idle();
      unloadLocal();
      engine = new Engine(id, start, (state) => {
        localModel.value = state;
      });
    }
    const chosen = engine;
    await chosen.loaded;
    chosen.reserve();
    return chosen;
  });
  turn = mine.catch(() => {});
  return await mine;
}

/**
 * Returns the worker script and the model to load. Throws LocalError if this browser cannot run the model or has not stored it.
 */
async function startOf(id: string): Promise<EngineStart> {
  const { device, name } = localName(id) ?? { device: "cpu", name: id };
  const problem = device === "gpu" ? await gpuObstacle() : obstacle();
  if (problem !== null) throw new LocalError(t(problem));
  const context = contextTokens.value;
  if (device === "gpu") {
    const files = await gpuModelFiles(name);
    if (files !== null) return { script: "gpu-worker.js", model: { name, files, context } };
  } else {
    const file = await modelFile(name);
    if (file !== null) return { script: "page-worker.js", model: { name, file, threads: threads.value, context } };
  }
  throw new LocalError(t("modelNotKept", { name }));
}

/** Waits for an engine. Throws if `signal` is aborted earlier; the engine is then released as soon as it is loaded. */
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
