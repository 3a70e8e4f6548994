// Model calls: calls of models whose thread or process sends its own kind of event stream: remote text models, diffusion models
// and speech models. A call waits until its model is loaded, is sent to the model's thread or process, and its events are
// forwarded as fast as they are read.
import type { Protocol } from "../../../runtime/actor/behaviour.ts";
import type { Ref } from "../../../runtime/actor/ref.ts";
import { StreamHub } from "../../../runtime/actor/stream.ts";
import type { ActorSystem } from "../../../runtime/actor/system.ts";
import { type ErrorRecord, fromErrorRecord, toErrorRecord } from "../../../runtime/errors.ts";
import type { Place } from "../../../runtime/thread/place.ts";
import type { ModelPlaceReady } from "../../messages.ts";
import type { ModelManager } from "../../models/model-manager.ts";
import { loading } from "../../models/served-model.ts";

export interface ModelCallsOptions {
  readonly models: Pick<ModelManager, "get">;
  readonly system: ActorSystem;
  /** Name of the actor that runs the calls, in the model's thread or process. */
  readonly actor: string;
  /** Channel of the events, and the number of unread events at which a call pauses. */
  readonly channel: string;
  readonly window: number;
}

/** Sends a call to the actor. The events of the call arrive on the stream with the number `stream`. */
type BeginCall<P> = (actor: Ref<P>, stream: number, ready: ModelPlaceReady) => void;

export interface FailedCall {
  readonly type: "error";
  readonly error: ErrorRecord;
}

export class ModelCalls<P extends Protocol<P>> {
  readonly #options: ModelCallsOptions;
  /** Stream hubs, which receive the event streams, by the model's thread or process. */
  readonly #hubs = new WeakMap<Place<ModelPlaceReady>, StreamHub>();
  #lastStream = 0;

  constructor(options: ModelCallsOptions) {
    this.#options = options;
  }

  /**
   * Calls a model and yields its events. The model stays loaded during the call. A failure is yielded as the last event; if the
   * signal is aborted, the call ends without a failure event. Throws model_not_found.
   */
  async *events<Event>(
    { model: id, client }: { readonly model: string; readonly client: string },
    signal: AbortSignal,
    begin: BeginCall<P>,
  ): AsyncGenerator<readonly (Event | FailedCall)[]> {
    const model = this.#options.models.get(id);
    let hasEntered = false;
    try {
      await model.enter(signal, client);
      hasEntered = true;
      const { place } = model.model;
      if (place === null) throw fromErrorRecord(loading(id));
      const stream = ++this.#lastStream;
      const reader = this.#hubOf(place).reader<Event>(stream);
      const cancel = (): void => reader.cancel();
      signal.addEventListener("abort", cancel, { once: true });
      try {
        begin(this.#options.system.ref<P>(this.#options.actor, place.endpoint), stream, place.ready);
        if (signal.aborted) cancel();
        yield* reader;
      } finally {
        signal.removeEventListener("abort", cancel);
      }
    } catch (error) {
      if (!signal.aborted) yield [{ type: "error", error: toErrorRecord(error) }];
    } finally {
      if (hasEntered) model.gate.leave();
    }
  }

  #hubOf(place: Place<ModelPlaceReady>): StreamHub {
    const found = this.#hubs.get(place);
    if (found !== undefined) return found;
    const hub = new StreamHub(place.endpoint, this.#options);
    this.#hubs.set(place, hub);
    return hub;
  }
}
