// Pictures: the interface that http/ uses to make pictures from text. Implemented by actors/front/model-calls/picture-service.ts.
import type { DiffusionCard, PictureRequest } from "../../../engines/diffusion/diffusion.ts";
import type { ErrorRecord } from "../../../runtime/errors.ts";

/** Pictures to make one after another. Picture i has the seed `picture.seed` + i. */
export interface PaintRequest {
  /** Id of a diffusion model. */
  readonly model: string;
  readonly client: string;
  /** Number of pictures. */
  readonly count: number;
  /** Number of unfinished pictures that are sent of each picture, at equal distances of steps. */
  readonly partials: number;
  readonly picture: PictureRequest;
}

export type PaintEvent =
  /** First event of each picture. `steps`: number of evaluations of the model. */
  | {
      readonly type: "begin";
      readonly picture: number;
      readonly width: number;
      readonly height: number;
      readonly steps: number;
      readonly promptTokens: number;
    }
  /** A step is done. */
  | { readonly type: "step"; readonly picture: number; readonly done: number; readonly steps: number }
  /** An unfinished picture as a PNG file. `index`: 0 for the first one of the picture. */
  | { readonly type: "partial"; readonly picture: number; readonly index: number; readonly png: Uint8Array }
  /** A finished picture as a PNG file. */
  | { readonly type: "picture"; readonly picture: number; readonly seed: number; readonly png: Uint8Array }
  | { readonly type: "done" }
  | { readonly type: "error"; readonly error: ErrorRecord };

/** A configured diffusion model. */
export interface DiffusionModelEntry {
  readonly id: string;
  /** Facts of the model; null until it is loaded for the first time. */
  readonly card: DiffusionCard | null;
}

export interface Pictures {
  models(): readonly DiffusionModelEntry[];
  /**
   * Returns the id of a diffusion model. undefined and "default" mean the default model if it makes pictures, else the first one that
   * does. Throws model_not_found, and `unsupported` if the model or no model makes pictures.
   */
  resolve(requested: string | undefined): string;
  /** Makes pictures. Failures arrive as one final `error` event; they are never thrown. Aborting ends before the next step. */
  paint(request: PaintRequest, signal: AbortSignal): AsyncIterable<readonly PaintEvent[]>;
}
