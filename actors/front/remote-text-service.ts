// Remote text service: generates with models on servers that give text only (upstream_mode), for the inference service. It waits until
// the model is loaded, sends the request to the model's thread, and passes the events back.
import type { GenerateEvent, GenerateRequest } from "../../engines/generation.ts";
import { StreamHub } from "../../runtime/actor/stream.ts";
import type { ActorSystem } from "../../runtime/actor/system.ts";
import { fromErrorRecord, toErrorRecord } from "../../runtime/errors.ts";
import type { Place } from "../../runtime/thread/place.ts";
import { movedWith } from "../api/sealed-content.ts";
import { type ModelPlaceReady, type RemoteTextProtocol, remoteTextChannel, remoteTextWindow } from "../messages.ts";
import type { ModelManager } from "../models/model-manager.ts";
import { loading, shuttingDown } from "../models/served-model.ts";

export class RemoteTextService {
  readonly #models: ModelManager;
  readonly #system: ActorSystem;
  readonly #isStopping: () => boolean;
  /** Streams of each model's thread. */
  readonly #hubs = new WeakMap<Place<ModelPlaceReady>, StreamHub>();
  #lastStream = 0;

  constructor(models: ModelManager, system: ActorSystem, isStopping: () => boolean) {
    this.#models = models;
    this.#system = system;
    this.#isStopping = isStopping;
  }

  serves(id: string): boolean {
    return this.#models.all.some(({ served }) => served.id === id && served.textRemote !== undefined);
  }

  async *generate(
    request: GenerateRequest,
    signal: AbortSignal,
    onPrepared: () => void,
  ): AsyncGenerator<readonly GenerateEvent[]> {
    const model = this.#models.get(request.model);
    let hasEntered = false;
    const failure = (thrown: unknown): readonly GenerateEvent[] => {
      const error = toErrorRecord(thrown);
      model.refusals.note(error.code);
      return [{ type: "error", error: this.#isStopping() ? shuttingDown : error }];
    };
    try {
      await model.enter(signal, request.client);
      hasEntered = true;
      const { place } = model.model;
      if (place === null) throw fromErrorRecord(loading(request.model));
      const stream = ++this.#lastStream;
      const reader = this.#hubOf(place).reader<GenerateEvent>(stream);
      const cancel = (): void => reader.cancel();
      signal.addEventListener("abort", cancel, { once: true });
      try {
        const actor = this.#system.ref<RemoteTextProtocol>("remoteText", place.endpoint);
        actor.tell("generate", { stream, request }, movedWith(request));
        onPrepared();
        if (signal.aborted) cancel();
        for await (const batch of reader) {
          const last = batch.at(-1);
          if (last?.type === "error") yield [...batch.slice(0, -1), ...failure(fromErrorRecord(last.error))];
          else yield batch;
        }
      } finally {
        signal.removeEventListener("abort", cancel);
      }
    } catch (error) {
      if (!signal.aborted) yield failure(error);
    } finally {
      if (hasEntered) model.leave();
      onPrepared();
    }
  }

  #hubOf(place: Place<ModelPlaceReady>): StreamHub {
    const found = this.#hubs.get(place);
    if (found !== undefined) return found;
    const hub = new StreamHub(place.endpoint, { channel: remoteTextChannel, window: remoteTextWindow });
    this.#hubs.set(place, hub);
    return hub;
  }
}
