// Image generation: the interface that http/ uses to make images from text. Implemented by actors/front/model-calls/image-service.ts.
import type { DiffusionCard, ImageRequest } from "../../../engines/diffusion/diffusion.ts";
import type { ErrorRecord } from "../../../runtime/errors.ts";

/** Images to make one after another. Image i has the seed `image.seed` + i. */
export interface ImageGenerationRequest {
  /** Id of a diffusion model. */
  readonly model: string;
  readonly client: string;
  /** Number of images. */
  readonly count: number;
  /** Number of unfinished images that are sent of each image, at equal distances of steps. */
  readonly partials: number;
  readonly image: ImageRequest;
}

export type ImageGenerationEvent =
  /** First event of each image. `steps`: number of evaluations of the model. */
  | {
      readonly type: "begin";
      readonly imageIndex: number;
      readonly width: number;
      readonly height: number;
      readonly steps: number;
      readonly promptTokens: number;
    }
  /** A step is done. */
  | { readonly type: "step"; readonly imageIndex: number; readonly done: number; readonly steps: number }
  /** An unfinished image as a PNG file. `index`: 0 for the first one of the image. */
  | { readonly type: "partial"; readonly imageIndex: number; readonly index: number; readonly png: Uint8Array }
  /** A finished image as a PNG file. */
  | { readonly type: "image"; readonly imageIndex: number; readonly seed: number; readonly png: Uint8Array }
  | { readonly type: "done" }
  | { readonly type: "error"; readonly error: ErrorRecord };

/** A configured diffusion model. */
export interface DiffusionModelEntry {
  readonly id: string;
  /** Facts of the model; null until it is loaded for the first time. */
  readonly card: DiffusionCard | null;
}

export interface ImageGeneration {
  models(): readonly DiffusionModelEntry[];
  /**
   * Returns the id of a diffusion model. undefined and "default" mean the default model if it makes images, else the first one that
   * does. Throws model_not_found, and `unsupported` if the model or no model makes images.
   */
  resolve(requested: string | undefined): string;
  /** Makes images. Failures arrive as one final `error` event; they are never thrown. Aborting ends before the next step. */
  generate(request: ImageGenerationRequest, signal: AbortSignal): AsyncIterable<readonly ImageGenerationEvent[]>;
}
