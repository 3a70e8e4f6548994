// Owns reading which layers of a model see a window of positions only. Used by the architectures that have such.

import type { Keys } from "../keys.ts";
import { maxContext } from "../ropes.ts";
import type { CommonShape, Traits } from "../shape.ts";

const windowKey = "attention.sliding_window";
const patternKey = "attention.sliding_window_pattern";

/**
 * Of every so many layers (`period`, unless the file says otherwise) the last one sees all positions, and all do where there is
 * no window. `fallback` is the window of files that name none.
 */
export function readSliding(
  keys: Keys,
  { layers }: CommonShape,
  period: number,
  fallback = 0,
): Pick<Traits, "window" | "slides"> {
  const window = keys.has(windowKey) ? keys.countOrNone(windowKey, maxContext) : fallback;
  return { window, slides: window === 0 ? [] : readSlides(keys, layers, period) };
}

function readSlides(keys: Keys, layers: number, period: number): readonly boolean[] {
  const listed = keys.truths(patternKey, layers);
  if (listed) return listed;
  const every = keys.has(patternKey) ? keys.countOrNone(patternKey, maxContext) : period;
  return Array.from({ length: layers }, (_, layer) => every === 0 || layer % every < every - 1);
}
