// Pixel limits: minimum and maximum area of an image tile, for models with tiles of variable size. Read from preprocessor_config.json.
import type { Pairs } from "../pairs.ts";
import type { VisionConfigs } from "./vision-class.ts";

/** Adds the minimum and maximum area in pixels. Newer files store these areas as `shortest_edge` and `longest_edge` of `size`. */
export function addPixelLimits({ images }: VisionConfigs, pairs: Pairs): void {
  const size = images.object("size") ?? {};
  const limit = (name: string, edge: string): number | undefined => {
    const value = images.value(name) ?? size[edge];
    if (value === undefined || (typeof value === "number" && Number.isInteger(value) && value >= 1)) return value;
    throw images.invalid(name, value, "a whole number from 1");
  };
  pairs.counts({
    image_min_pixels: limit("min_pixels", "shortest_edge"),
    image_max_pixels: limit("max_pixels", "longest_edge"),
  });
}
