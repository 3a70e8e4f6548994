// Sliding windows: reads the window length of a model and which of its layers have a sliding window. Used by the
// architectures that have such layers.

import type { Keys } from "../keys.ts";
import { maxContext } from "../ropes.ts";
import type { CommonShape, Traits } from "../shape.ts";

const windowKey = "attention.sliding_window";
const patternKey = "attention.sliding_window_pattern";

/**
 * Reads the window length (`fallback` if the file has none), and which layers have a sliding window. Every `period`-th
 * layer has full attention, unless the file has another pattern. If the window length is 0, all layers have full
 * attention.
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
