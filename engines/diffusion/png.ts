// PNG encoder of images.
import { encode } from "fast-png";
import type { Pixels } from "./diffusion.ts";

export function pngOf({ width, height, data }: Pixels): Uint8Array {
  return encode({ width, height, data, channels: 3, depth: 8 });
}
