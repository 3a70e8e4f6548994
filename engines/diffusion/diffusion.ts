// Diffusion contract: the interface of the model that makes images from text. A place (thread or process) loads one model and uses it
// through this interface. The engine does not depend on HTTP or actors.
import type { SchedulerName } from "./schedulers/config.ts";

/** A diffusion model to load. */
export interface DiffusionSpec {
  /** Folder in the layout of diffusers, with ONNX models. */
  readonly path: string;
  /** Number of compute threads. */
  readonly threads: number;
  readonly limits: ImageLimits;
}

export interface ImageLimits {
  /** Maximum number of pixels of an image. */
  readonly maxPixels: number;
  /** Maximum number of denoising steps for one image. */
  readonly maxSteps: number;
}

/** Facts of a loaded diffusion model. */
export interface DiffusionCard {
  /** Name of the pipeline in model_index.json. */
  readonly pipeline: string;
  /** Name and version of the library that computes. */
  readonly backend: string;
  /** Bytes of the model's files. */
  readonly weightBytes: number;
  /** Width and height, in pixels, for which the model was trained. */
  readonly nativeSize: number;
  /** Widths and heights must be multiples of this number of pixels. */
  readonly sizeMultiple: number;
  readonly limits: ImageLimits;
  readonly defaults: ImageDefaults;
}

/** Values for fields that a request leaves out. */
export interface ImageDefaults {
  readonly scheduler: SchedulerName;
  readonly steps: number;
  readonly guidance: number;
}

/** A request for an image. In its fields, null = the model's default. */
export interface ImageRequest {
  readonly prompt: string;
  /** Description of what the image should not show; null = none. */
  readonly negativePrompt: string | null;
  readonly width: number | null;
  readonly height: number | null;
  readonly steps: number | null;
  /** Strength of the prompt (classifier-free guidance); 1 = no guidance beyond the model's own. */
  readonly guidance: number | null;
  readonly scheduler: SchedulerName | null;
  /** Seed of the noise. */
  readonly seed: number;
  /** Whether the end of a prompt that is too long is cut off. If false, such a prompt is refused. */
  readonly truncatesPrompt: boolean;
}

/** An image of 3 bytes per pixel (red, green, blue), row by row. */
export interface Pixels {
  readonly width: number;
  readonly height: number;
  readonly data: Uint8Array;
}

/** An image in progress, which can be abandoned between two calls. */
export interface ImageInProgress {
  readonly width: number;
  readonly height: number;
  /** Number of tokens of the prompt. */
  readonly promptTokens: number;
  /** Number of evaluations of the model, one per call of advance(). */
  readonly evaluations: number;
  /** Number of evaluations that have been computed. */
  readonly done: number;
  /** Computes the next evaluation. */
  advance(): Promise<void>;
  /** Decodes the current latents into an image. Throws model_failed if the decoder returns NaN or a wrong number of values. */
  pixels(): Promise<Pixels>;
}

export interface DiffusionModel {
  readonly card: DiffusionCard;
  /** Checks a request and encodes its prompt. Throws invalid_value, which names the field. */
  begin(request: ImageRequest): Promise<ImageInProgress>;
  dispose(): Promise<void>;
}
