// PictureService: implements Pictures for http/ on the main thread. It waits until the model is loaded, sends the call to the model's
// process, and passes the events back.
import { missingOnnx } from "../../engines/onnx/onnx.ts";
import { StreamHub } from "../../runtime/actor/stream.ts";
import type { ActorSystem } from "../../runtime/actor/system.ts";
import { fromErrorRecord, ServerError, toErrorRecord } from "../../runtime/errors.ts";
import type { Place } from "../../runtime/thread/place.ts";
import type { DiffusionModelEntry, PaintEvent, PaintRequest, Pictures } from "../api/pictures/pictures.ts";
import { type DiffusionProtocol, diffusionChannel, diffusionWindow, type ModelPlaceReady } from "../messages.ts";
import type { ManagedModel } from "../models/managed-model.ts";
import type { ModelManager } from "../models/model-manager.ts";
import { loading } from "../models/served-model.ts";

export interface PictureServiceOptions {
  readonly models: ModelManager;
  readonly system: ActorSystem;
  readonly defaultModelId: string;
}

export class PictureService implements Pictures {
  readonly #options: PictureServiceOptions;
  /** Streams of each model's process. */
  readonly #hubs = new WeakMap<Place<ModelPlaceReady>, StreamHub>();
  #lastStream = 0;

  constructor(options: PictureServiceOptions) {
    this.#options = options;
  }

  models(): readonly DiffusionModelEntry[] {
    return this.#all().map(({ id, model }) => ({ id, card: model.capabilities?.diffusion ?? null }));
  }

  resolve(requested: string | undefined): string {
    const all = this.#all();
    if (requested === undefined || requested === "default") {
      const chosen = all.find(({ id }) => id === this.#options.defaultModelId) ?? all[0];
      if (chosen !== undefined) return chosen.id;
      throw noneServed();
    }
    const { id } = this.#options.models.resolve(requested);
    if (all.some((model) => model.id === id)) return id;
    const others = all.map((model) => JSON.stringify(model.id)).join(", ");
    const advice = others === "" ? noneServed().message : `name one of: ${others}`;
    throw new ServerError("unsupported", `model "${id}" makes no images; ${advice}`, { param: "model" });
  }

  async *paint(request: PaintRequest, signal: AbortSignal): AsyncGenerator<readonly PaintEvent[]> {
    const model = this.#options.models.get(request.model);
    let hasEntered = false;
    try {
      await model.enter(signal, request.client);
      hasEntered = true;
      const { place } = model.model;
      if (place === null) throw fromErrorRecord(loading(request.model));
      const stream = ++this.#lastStream;
      const reader = this.#hubOf(place).reader<PaintEvent>(stream);
      const cancel = (): void => reader.cancel();
      signal.addEventListener("abort", cancel, { once: true });
      try {
        this.#options.system.ref<DiffusionProtocol>("diffusion", place.endpoint).tell("paint", { stream, request });
        if (signal.aborted) cancel();
        yield* reader;
      } finally {
        signal.removeEventListener("abort", cancel);
      }
    } catch (error) {
      if (!signal.aborted) yield [{ type: "error", error: toErrorRecord(error) }];
    } finally {
      if (hasEntered) model.leave();
    }
  }

  #all(): readonly ManagedModel[] {
    return this.#options.models.all.filter(({ served }) => served.diffusion !== undefined);
  }

  #hubOf(place: Place<ModelPlaceReady>): StreamHub {
    const found = this.#hubs.get(place);
    if (found !== undefined) return found;
    const hub = new StreamHub(place.endpoint, { channel: diffusionChannel, window: diffusionWindow });
    this.#hubs.set(place, hub);
    return hub;
  }
}

function noneServed(): ServerError {
  const missing = missingOnnx();
  const message =
    "no model of this server makes images; serve a Stable Diffusion model in ONNX with a [[models]] entry of kind = " +
    '"diffusion", or troupe serve diffusion -m FOLDER' +
    (missing === null ? "" : `; ${missing}`);
  return new ServerError("unsupported", message, { param: "model" });
}
