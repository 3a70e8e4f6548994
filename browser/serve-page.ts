// Message loop of a worker that runs a model for a page: loads the model, and starts and stops responses.
import { type ErrorRecord, ServerError, toErrorRecord } from "../runtime/errors.ts";
import type { LoadedFacts, PageMessage, WorkerMessage } from "./messages.ts";

/** Loaded model. */
export interface RunningModel {
  readonly facts: LoadedFacts;
  /** Never resolves; rejects if the engine fails. */
  readonly running: Promise<void>;
  /**
   * Runs a response. `body`: as for POST /v1/responses. `emit`: called with the text of the stream, in complete events. Throws
   * if the request is rejected; later errors are reported as events.
   */
  respond(body: object, signal: AbortSignal, emit: (text: string) => void): Promise<void>;
}

/** Loads a model. `onProgress`: called with the fraction that is loaded, from 0 to 1. */
export type LoadModel<Model> = (model: Model, onProgress: (fraction: number) => void) => Promise<RunningModel>;

/** Minimum increase of the loaded fraction between two progress messages. */
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
