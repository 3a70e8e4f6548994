// Image generation: the interface that http/ uses to generate images from text. Implemented by actors/front/model-calls/image-service.ts.
import type { DiffusionCard, ImageRequest } from "../../../engines/diffusion/diffusion.ts";
import type { ErrorRecord } from "../../../runtime/errors.ts";

/** Request for images, which are generated one after another. Image i has the seed `image.seed` + i. */
export interface ImageGenerationRequest {
  /** Id of a diffusion model. */
  readonly model: string;
  readonly client: string;
  /** Number of images. */
  readonly count: number;
  /** Number of partial images to send while each image is generated, evenly spaced over the steps. */
  readonly partials: number;
  readonly image: ImageRequest;
}

export type ImageGenerationEvent =
  /** First event of each image. `steps`: number of model evaluations. */
  | {
      readonly type: "begin";
      readonly imageIndex: number;
      readonly width: number;
      readonly height: number;
      readonly steps: number;
      readonly promptTokens: number;
    }
  /** A denoising step is finished. `done`: number of finished steps. */
  | { readonly type: "step"; readonly imageIndex: number; readonly done: number; readonly steps: number }
  /** A partial image as a PNG file. `index`: counts the partial images of an image from 0. */
  | { readonly type: "partial"; readonly imageIndex: number; readonly index: number; readonly png: Uint8Array }
  /** A finished image as a PNG file. */
  | { readonly type: "image"; readonly imageIndex: number; readonly seed: number; readonly png: Uint8Array }
  | { readonly type: "done" }
  | { readonly type: "error"; readonly error: ErrorRecord };

/** A configured diffusion model. */
export interface DiffusionModelEntry {
  readonly id: string;
  /** Facts of the model; null until the model is loaded for the first time. */
  readonly card: DiffusionCard | null;
}

export interface ImageGeneration {
  models(): readonly DiffusionModelEntry[];
  /**
   * Returns the id of a diffusion model. undefined and "default" mean the default model if it is a diffusion model, else the
   * first diffusion model. Throws model_not_found, and `unsupported` if the named model, or every model, is of another kind.
   */
  resolve(requested: string | undefined): string;
  /**
   * Generates images. Failures arrive as one final `error` event; they are never thrown. Aborting the signal ends the call before
   * the next step.
   */
  generate(request: ImageGenerationRequest, signal: AbortSignal): AsyncIterable<readonly ImageGenerationEvent[]>;
}
