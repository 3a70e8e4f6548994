// Painting: one call of a diffusion model. Between two steps the call can end: because its client has gone, or because it has taken too
// long.
import type { DiffusionModel, Painting } from "../../engines/diffusion/diffusion.ts";
import { pngOf } from "../../engines/diffusion/png.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { PaintEvent, PaintRequest } from "../api/pictures/pictures.ts";

export interface PaintCall {
  /** Maximum time of one picture in milliseconds. */
  readonly limitMs: number;
  readonly signal: AbortSignal;
  /** Sends an event. Resolves when the reader has room for the next one. */
  send(event: PaintEvent): Promise<void>;
}

export async function paint(
  model: DiffusionModel,
  { count, partials, picture: request }: PaintRequest,
  call: PaintCall,
): Promise<void> {
  for (let picture = 0; picture < count; picture++) {
    const deadline = performance.now() + call.limitMs;
    const seed = request.seed + picture;
    const painting = await model.begin({ ...request, seed });
    const { width, height, evaluations: steps, promptTokens } = painting;
    await call.send({ type: "begin", picture, width, height, steps, promptTokens });
    const shown = partialSteps(steps, partials);
    while (painting.done < steps) {
      checkGoesOn(call, deadline, painting);
      await painting.advance();
      await call.send({ type: "step", picture, done: painting.done, steps });
      const index = shown.indexOf(painting.done);
      if (index < 0) continue;
      checkGoesOn(call, deadline, painting);
      await call.send({ type: "partial", picture, index, png: pngOf(await painting.picture()) });
    }
    checkGoesOn(call, deadline, painting);
    await call.send({ type: "picture", picture, seed, png: pngOf(await painting.picture()) });
  }
  await call.send({ type: "done" });
}

/** Returns the numbers of done steps after which an unfinished picture is sent: fewer than wanted if there are few steps. */
function partialSteps(steps: number, partials: number): number[] {
  const wanted = Array.from({ length: partials }, (_, i) => Math.round(((i + 1) * steps) / (partials + 1)));
  return [...new Set(wanted)].filter((done) => done > 0 && done < steps);
}

function checkGoesOn({ signal, limitMs }: PaintCall, deadline: number, { done, evaluations }: Painting): void {
  if (signal.aborted) throw new ServerError("cancelled", "the request was cancelled");
  if (performance.now() < deadline) return;
  const message =
    `the image took longer than ${limitMs / 1000} s (timeout_secs of [diffusion]), with ${done} of ${evaluations} steps done; ` +
    "ask for a smaller one, or for fewer steps";
  throw new ServerError("timeout", message);
}
