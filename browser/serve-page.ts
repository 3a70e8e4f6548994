// Loop of a worker that runs a model for a page: loads the model, runs responses, and stops them.
import { type ErrorRecord, ServerError, toErrorRecord } from "../runtime/errors.ts";
import type { LoadedFacts, PageMessage, WorkerMessage } from "./messages.ts";

/** A model that is loaded. */
export interface RunningModel {
  readonly facts: LoadedFacts;
  /** Rejects if the engine fails. */
  readonly running: Promise<void>;
  /**
   * Runs a response. `body`: as of POST /v1/responses. `emit` gets the text of the stream in parts of whole events. Throws if the
   * request is refused; later failures are events.
   */
  respond(body: object, signal: AbortSignal, emit: (text: string) => void): Promise<void>;
}

/** Loads a model. `onProgress` gets the fraction of the load, 0..1. */
export type LoadModel<Model> = (model: Model, onProgress: (fraction: number) => void) => Promise<RunningModel>;

/** Smallest progress that is shown. */
const progressStep = 0.01;

export function servePage<Model>(loadModel: LoadModel<Model>): void {
  let model: RunningModel | null = null;
  const stops = new Map<number, AbortController>();

  globalThis.onmessage = ({ data }: MessageEvent<PageMessage<Model>>) => {
    if (data.kind === "load") void load(data.model);
    else if (data.kind === "stop") stops.get(data.id)?.abort(new Error("stopped"));
    else void respond(data.id, data.body);
  };

  async function load(wanted: Model): Promise<void> {
    try {
      let shown = 0;
      model = await loadModel(wanted, (fraction) => {
        if (fraction < shown + progressStep && fraction < 1) return;
        shown = fraction;
        send({ kind: "progress", fraction });
      });
      model.running.catch(fail);
      send({ kind: "loaded", facts: model.facts });
    } catch (error) {
      fail(error);
    }
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
      send({ kind: "refused", id, problem: problemOf(error) });
    } finally {
      stops.delete(id);
    }
  }
}

function send(message: WorkerMessage): void {
  globalThis.postMessage(message);
}

function fail(error: unknown): void {
  send({ kind: "failed", problem: problemOf(error) });
}

function problemOf(error: unknown): ErrorRecord {
  if (!(error instanceof ServerError)) console.error(error);
  return toErrorRecord(error);
}
