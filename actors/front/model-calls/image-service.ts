// ImageService: implements ImageGeneration for http/ on the main thread.
import { missingOnnx } from "../../../engines/onnx/onnx.ts";
import type { ActorSystem } from "../../../runtime/actor/system.ts";
import { ServerError } from "../../../runtime/errors.ts";
import type {
  DiffusionModelEntry,
  ImageGeneration,
  ImageGenerationEvent,
  ImageGenerationRequest,
} from "../../api/images/image-generation.ts";
import { type DiffusionProtocol, diffusionChannel, diffusionWindow } from "../../messages.ts";
import type { ManagedModel } from "../../models/managed-model.ts";
import type { ModelManager } from "../../models/model-manager.ts";
import { ModelCalls } from "./model-calls.ts";

export interface ImageServiceOptions {
  readonly models: ModelManager;
  readonly system: ActorSystem;
  readonly defaultModelId: string;
}

export class ImageService implements ImageGeneration {
  readonly #options: ImageServiceOptions;
  readonly #calls: ModelCalls<DiffusionProtocol>;

  constructor(options: ImageServiceOptions) {
    this.#options = options;
    const { models, system } = options;
    const stream = { channel: diffusionChannel, window: diffusionWindow };
    this.#calls = new ModelCalls({ models, system, actor: "diffusion", ...stream });
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

  generate(request: ImageGenerationRequest, signal: AbortSignal): AsyncGenerator<readonly ImageGenerationEvent[]> {
    return this.#calls.events<ImageGenerationEvent>(request, signal, (actor, stream) =>
      actor.tell("generate", { stream, request }),
    );
  }

  #all(): readonly ManagedModel[] {
    return this.#options.models.all.filter(({ served }) => served.diffusion !== undefined);
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
