// Sliding windows: reads which layers of a model have one. Used by the architectures that have such layers.

import type { Keys } from "../keys.ts";
import { maxContext } from "../ropes.ts";
import type { CommonShape, Traits } from "../shape.ts";

const windowKey = "attention.sliding_window";
const patternKey = "attention.sliding_window_pattern";

/**
 * Every `period`-th layer (the file's value, if any, wins) has full attention; without a window, all layers do.
 * `fallback` is the window if the file gives none.
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
