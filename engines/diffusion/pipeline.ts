// Pipeline: opens the models in a folder, and makes images from prompts: text encoders, then the U-Net with a scheduler, then the decoder.
import { ServerError } from "../../runtime/errors.ts";
import { availableMemory } from "../../runtime/host/memory.ts";
import { loadOnnx, type Onnx, type OnnxSession, openSession, runSession } from "../onnx/onnx.ts";
import { floatsOf, inputsOf, type OnnxPort, tensorFor } from "../onnx/tensors.ts";
import type {
  DiffusionCard,
  DiffusionModel,
  DiffusionSpec,
  ImageDefaults,
  ImageInProgress,
  ImageRequest,
  Pixels,
} from "./diffusion.ts";
import { checkImageMemory, checkMemory } from "./memory.ts";
import { type DiffusionFolder, partFile, readDiffusionFolder } from "./model-folder.ts";
import { type NoiseSource, SeededNoise } from "./noise.ts";
import { openScheduler } from "./schedulers/open-scheduler.ts";
import type { Scheduler } from "./schedulers/scheduler.ts";
import { type EncodedPrompt, TextEncoders } from "./text-encoders.ts";
import { type Conditions, UNet } from "./unet.ts";

/** Opens the model of a folder. Throws unsupported, model_file_invalid, model_failed. */
export async function openDiffusion(spec: DiffusionSpec): Promise<Pipeline> {
  const onnx = await loadOnnx();
  const folder = await readDiffusionFolder(spec.path);
  checkMemory(folder, availableMemory());
  const encoders = await TextEncoders.open(onnx, folder, spec.threads);
  const unet = await UNet.open(onnx, folder, spec.threads);
  const decoder = await openSession(onnx, partFile(folder.path, "vae_decoder"), spec.threads);
  const [port] = inputsOf(decoder);
  if (port === undefined || decoder.inputNames.length !== 1) {
    const message = `"${partFile(folder.path, "vae_decoder")}" has ${decoder.inputNames.length} inputs; expected one, the latents`;
    throw new ServerError("model_file_invalid", message);
  }
  return new Pipeline({ onnx, spec, folder, encoders, unet, decoder, port });
}

interface Parts {
  readonly onnx: Onnx;
  readonly spec: DiffusionSpec;
  readonly folder: DiffusionFolder;
  readonly encoders: TextEncoders;
  readonly unet: UNet;
  readonly decoder: OnnxSession;
  readonly port: OnnxPort;
}

export class Pipeline implements DiffusionModel {
  readonly card: DiffusionCard;
  readonly #parts: Parts;

  constructor(parts: Parts) {
    this.#parts = parts;
    const { folder, spec, onnx, unet } = parts;
    this.card = {
      pipeline: folder.pipeline,
      backend: `onnxruntime ${onnx.env.versions.node ?? onnx.env.versions.common}`,
      weightBytes: folder.weightBytes,
      nativeSize: folder.nativeSize,
      sizeMultiple: folder.sizeMultiple,
      limits: spec.limits,
      defaults: defaultsOf(folder, unet),
    };
  }

  /** Starts an image. `noise`: noise source; default: a source with the request's seed. */
  async begin(request: ImageRequest, noise: NoiseSource = new SeededNoise(request.seed)): Promise<ImageInProgress> {
    const { folder, encoders, unet, spec } = this.#parts;
    const { defaults } = this.card;
    const [width, height] = this.#sizeOf(request);
    const steps = request.steps ?? Math.min(defaults.steps, spec.limits.maxSteps);
    if (steps > spec.limits.maxSteps) {
      const message = `expected at most ${spec.limits.maxSteps} steps (max_steps of [diffusion]), got ${steps}`;
      throw new ServerError("invalid_value", message, { param: "steps" });
    }
    const scheduler = openScheduler(request.scheduler ?? defaults.scheduler, folder.scheduler, steps);
    const guidance = request.guidance ?? defaults.guidance;
    const truncates = request.truncatesPrompt;
    const positive = await encoders.encode(request.prompt, truncates, "prompt");
    const isGuided = guidance > 1 && !unet.takesGuidance;
    if (!isGuided && request.negativePrompt !== null) {
      const message =
        "a negative prompt has an effect only with a guidance_scale above 1, on a model without built-in guidance";
      throw new ServerError("invalid_value", message, { param: "negative_prompt" });
    }
    const negative = isGuided ? await this.#negative(request, positive) : null;
    const latents = {
      channels: folder.channels,
      height: height / folder.pixelsPerLatent,
      width: width / folder.pixelsPerLatent,
    };
    const conditions = { latents, width, height, guidance };
    return new PipelineImage(this.#parts, { scheduler, positive, negative, conditions, noise });
  }

  async dispose(): Promise<void> {
    const { encoders, unet, decoder } = this.#parts;
    await encoders.dispose();
    await unet.session.release();
    await decoder.release();
  }

  #sizeOf({ width: wantedWidth, height: wantedHeight }: ImageRequest): readonly [width: number, height: number] {
    const { folder, unet, spec } = this.#parts;
    const { sizeMultiple: multiple, pixelsPerLatent } = folder;
    const fixed = unet.fixedSize();
    const width = wantedWidth ?? (fixed.width === null ? folder.nativeSize : fixed.width * pixelsPerLatent);
    const height = wantedHeight ?? (fixed.height === null ? folder.nativeSize : fixed.height * pixelsPerLatent);
    for (const [side, latents] of [
      [width, fixed.width],
      [height, fixed.height],
    ] as const) {
      if (latents !== null && side !== latents * pixelsPerLatent) {
        const only = `${(fixed.width ?? 0) * pixelsPerLatent} x ${(fixed.height ?? 0) * pixelsPerLatent}`;
        throw sizeError(`the model was exported for ${only} pixels only, got ${width} x ${height}`);
      }
      if (latents === null && (side < multiple || side % multiple !== 0)) {
        throw sizeError(`expected multiples of ${multiple} pixels for this model, got ${width} x ${height}`);
      }
    }
    if (width * height > spec.limits.maxPixels) {
      throw sizeError(
        `expected at most ${spec.limits.maxPixels} pixels (max_pixels of [diffusion]), got ${width} x ${height}`,
      );
    }
    checkImageMemory(folder, width, height, availableMemory());
    return [width, height];
  }

  async #negative({ negativePrompt, truncatesPrompt }: ImageRequest, positive: EncodedPrompt): Promise<EncodedPrompt> {
    const { folder, encoders } = this.#parts;
    if (negativePrompt !== null || !folder.zeroesEmptyPrompt) {
      return await encoders.encode(negativePrompt ?? "", truncatesPrompt, "negative_prompt");
    }
    const pooled = positive.pooled === null ? null : new Float32Array(positive.pooled.length);
    return { ...positive, states: new Float32Array(positive.states.length), pooled };
  }
}

interface Progress {
  readonly scheduler: Scheduler;
  readonly positive: EncodedPrompt;
  /** Encoded negative prompt; null = no classifier-free guidance, which needs two evaluations per step. */
  readonly negative: EncodedPrompt | null;
  readonly conditions: Conditions;
  readonly noise: NoiseSource;
}

class PipelineImage implements ImageInProgress {
  done = 0;
  readonly #parts: Parts;
  readonly #progress: Progress;
  readonly #latents: Float32Array;
  readonly #scaled: Float32Array;

  constructor(parts: Parts, progress: Progress) {
    this.#parts = parts;
    this.#progress = progress;
    const { channels, height, width } = progress.conditions.latents;
    const { initialScale } = progress.scheduler;
    this.#latents = progress.noise.next(channels * height * width).map((value) => value * initialScale);
    this.#scaled = new Float32Array(this.#latents.length);
  }

  get width(): number {
    return this.#progress.conditions.width;
  }

  get height(): number {
    return this.#progress.conditions.height;
  }

  get promptTokens(): number {
    return this.#progress.positive.tokens;
  }

  get evaluations(): number {
    return this.#progress.scheduler.timesteps.length;
  }

  /** The current latents. The array is valid until the next call. */
  get latents(): Float32Array {
    return this.#latents;
  }

  async advance(): Promise<void> {
    const { scheduler, positive, negative, conditions, noise } = this.#progress;
    const { unet } = this.#parts;
    const timestep = scheduler.timesteps[this.done] as number;
    const scale = scheduler.inputScale(this.done);
    for (let i = 0; i < this.#scaled.length; i++) this.#scaled[i] = (this.#latents[i] as number) * scale;
    const output = await unet.evaluate(this.#scaled, timestep, positive, conditions);
    if (negative !== null) {
      const plain = await unet.evaluate(this.#scaled, timestep, negative, conditions);
      for (let i = 0; i < output.length; i++) {
        const base = plain[i] as number;
        output[i] = base + conditions.guidance * ((output[i] as number) - base);
      }
    }
    const fresh = scheduler.takesNoise(this.done) ? noise.next(this.#latents.length) : null;
    scheduler.step(this.done, output, this.#latents, fresh);
    this.done++;
  }

  async pixels(): Promise<Pixels> {
    const { onnx, folder, decoder, port } = this.#parts;
    const { latents, width, height } = this.#progress.conditions;
    const shape = [1, latents.channels, latents.height, latents.width];
    const scaled = this.#latents.map((value) => value / folder.scaling);
    const outputs = await runSession(decoder, { [port.name]: tensorFor(onnx, port, scaled, shape) });
    return pixelsOf(floatsOf(outputs, decoder.outputNames[0] ?? ""), width, height);
  }
}

/** Converts three planes of floats from -1 to 1 to bytes. */
function pixelsOf(planes: Float32Array, width: number, height: number): Pixels {
  const count = width * height;
  if (planes.length !== 3 * count) {
    const message = `the decoder returned ${planes.length} numbers; expected 3 for each of ${width} x ${height} pixels`;
    throw new ServerError("model_failed", message);
  }
  const data = new Uint8Array(3 * count);
  for (let plane = 0; plane < 3; plane++) {
    for (let i = 0; i < count; i++) {
      const value = planes[plane * count + i] as number;
      if (Number.isNaN(value)) {
        throw new ServerError(
          "model_failed",
          "the model computed no numbers (NaN); 16-bit weights may overflow: use 32-bit",
        );
      }
      data[3 * i + plane] = Math.round(Math.min(1, Math.max(0, value / 2 + 0.5)) * 255);
    }
  }
  return { width, height, data };
}

const consistencyDefaults = { steps: 4, guidance: 1 };
/** Guidance strength for which consistency models with built-in guidance were distilled. */
const builtInGuidance = 8.5;

/** Returns the default settings. Models that are distilled for few steps are recognised by their scheduler. */
function defaultsOf({ scheduler, isXl }: DiffusionFolder, unet: UNet): ImageDefaults {
  const { name, spacing } = scheduler;
  if (unet.takesGuidance) return { scheduler: name, steps: 4, guidance: builtInGuidance };
  const isTurbo = (name === "euler" || name === "euler_ancestral") && spacing === "trailing";
  if (isTurbo || name === "lcm") return { scheduler: name, ...consistencyDefaults };
  return { scheduler: name, steps: 25, guidance: isXl ? 5 : 7.5 };
}

function sizeError(message: string): ServerError {
  return new ServerError("invalid_value", message, { param: "size" });
}
