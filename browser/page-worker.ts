// Page worker: the worker that a page starts to run a model. It is the leader of the engine's compute threads.
import "./node/globals.ts";
import sampler from "../dist/engines/decoding/sampler/sampler.wasm?url";
import plainKernels from "../dist/engines/wasm/kernels/kernels-plain.wasm?url";
import relaxedKernels from "../dist/engines/wasm/kernels/kernels-relaxed.wasm?url";
import { ServerError, toErrorRecord } from "../runtime/errors.ts";
import { LocalModel } from "./local-model.ts";
import type { ModelToLoad, PageMessage, WorkerMessage } from "./messages.ts";
import { addFile } from "./node/files.ts";

/** Modules of WebAssembly by the names under which the engine reads them. */
const modules = {
  "kernels-relaxed.wasm": relaxedKernels,
  "kernels-plain.wasm": plainKernels,
  "sampler.wasm": sampler,
};

let model: LocalModel | null = null;
const stops = new Map<number, AbortController>();

globalThis.onmessage = ({ data }: MessageEvent<PageMessage>) => {
  if (data.kind === "load") void load(data.model);
  else if (data.kind === "stop") stops.get(data.id)?.abort(new Error("stopped"));
  else void respond(data.id, data.body);
};

function send(message: WorkerMessage): void {
  globalThis.postMessage(message);
}

async function load(wanted: ModelToLoad): Promise<void> {
  try {
    await Promise.all(Object.entries(modules).map(([name, url]) => fetchModule(name, url)));
    addFile(wanted.name, wanted.file);
    let shown = 0;
    model = await LocalModel.load(wanted, (fraction) => {
      if (fraction < shown + 0.01 && fraction < 1) return;
      shown = fraction;
      send({ kind: "progress", fraction });
    });
    model.running.catch(fail);
    send({ kind: "loaded", facts: model.facts });
  } catch (error) {
    fail(error instanceof RangeError ? noMemory(error) : inPageWords(error));
  }
}

/** WebAssembly and the browser report missing memory as a RangeError. */
function noMemory(cause: RangeError): ServerError {
  const message = "the browser has no memory for this: choose a smaller model, fewer threads or a shorter conversation";
  return new ServerError("config_invalid", message, { cause });
}

/** The advice of the engine is for the settings of a server. */
function inPageWords(error: unknown): unknown {
  if (!(error instanceof ServerError) || error.code !== "config_invalid") return error;
  const [problem = ""] = error.message.split(";");
  return new ServerError(
    "config_invalid",
    `${problem}; choose a smaller model, or other threads and tokens on this page`,
  );
}

async function fetchModule(name: string, url: string): Promise<void> {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url} could not be loaded: status ${response.status}`);
  addFile(name, await response.blob());
}

function fail(error: unknown): void {
  send({ kind: "failed", problem: toErrorRecord(error) });
}

async function respond(id: number, body: object): Promise<void> {
  const stop = new AbortController();
  stops.set(id, stop);
  try {
    if (model === null) throw new Error("the model is not loaded");
    await model.respond(body, stop.signal, (text) => {
      if (text !== "") send({ kind: "events", id, text });
    });
  } catch (error) {
    send({ kind: "refused", id, problem: toErrorRecord(error) });
  } finally {
    stops.delete(id);
  }
}
