// Generates the images of one call of a diffusion model. Between two steps, the call can end because the client has disconnected
// or the time limit is exceeded.
import type { DiffusionModel, ImageInProgress } from "../../engines/diffusion/diffusion.ts";
import { pngOf } from "../../engines/diffusion/png.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { ImageGenerationEvent, ImageGenerationRequest } from "../api/images/image-generation.ts";

export interface ImageCall {
  /** Maximum time of one image in milliseconds. */
  readonly limitMs: number;
  readonly signal: AbortSignal;
  /** Sends an event. Resolves when the reader is ready for the next one. */
  send(event: ImageGenerationEvent): Promise<void>;
}

export async function generateImages(
  model: DiffusionModel,
  { count, partials, image: request }: ImageGenerationRequest,
  call: ImageCall,
): Promise<void> {
  for (let imageIndex = 0; imageIndex < count; imageIndex++) {
    const deadline = performance.now() + call.limitMs;
    const seed = request.seed + imageIndex;
    const image = await model.begin({ ...request, seed });
    const { width, height, evaluations: steps, promptTokens } = image;
    await call.send({ type: "begin", imageIndex, width, height, steps, promptTokens });
    const shown = partialSteps(steps, partials);
    while (image.done < steps) {
      checkGoesOn(call, deadline, image);
      await image.advance();
      await call.send({ type: "step", imageIndex, done: image.done, steps });
      const index = shown.indexOf(image.done);
      if (index < 0) continue;
      checkGoesOn(call, deadline, image);
      await call.send({ type: "partial", imageIndex, index, png: pngOf(await image.pixels()) });
    }
    checkGoesOn(call, deadline, image);
    await call.send({ type: "image", imageIndex, seed, png: pngOf(await image.pixels()) });
  }
  await call.send({ type: "done" });
}

/** Returns the step counts after which a partial image is sent: fewer than requested if there are few steps. */
function partialSteps(steps: number, partials: number): number[] {
  const wanted = Array.from({ length: partials }, (_, i) => Math.round(((i + 1) * steps) / (partials + 1)));
  return [...new Set(wanted)].filter((done) => done > 0 && done < steps);
}

function checkGoesOn({ signal, limitMs }: ImageCall, deadline: number, { done, evaluations }: ImageInProgress): void {
  if (signal.aborted) throw new ServerError("cancelled", "the request was cancelled");
  if (performance.now() < deadline) return;
  const message =
    `the image took longer than ${limitMs / 1000} s (timeout_secs of [diffusion]), with ${done} of ${evaluations} steps done; ` +
    "ask for a smaller one, or for fewer steps";
  throw new ServerError("timeout", message);
}
