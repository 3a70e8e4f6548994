// Memory of a diffusion model: an upper estimate of the memory for its weights and an image, so that a model or image that does not fit is
// refused instead of crashing the process.
import { ServerError } from "../../runtime/errors.ts";
import type { DiffusionFolder } from "./model-folder.ts";

/** Bytes per pixel while the decoder computes: 4 bytes per float, times the 128 channels of its last layers, times 6 copies. */
const decoderBytesPerPixel = 4 * 128 * 6;
/** Number of attention heads at the U-Net's first level. Attention has one float for each head and pair of latents. */
const attentionHeads = 8;
/** Memory of the weights relative to the size of their files, because the library copies weights for its kernels. */
const weightFactor = 1.3;

/** Returns the bytes that an image needs in addition to the weights. */
export function imageBytes({ pixelsPerLatent, isXl }: DiffusionFolder, width: number, height: number): number {
  const latents = (width / pixelsPerLatent) * (height / pixelsPerLatent);
  // SDXL has no attention at the first level; the second level has a quarter of the positions.
  const unet = 4 * attentionHeads * (isXl ? latents / 4 : latents) ** 2;
  const decoder = 2 * 4 * latents ** 2 + decoderBytesPerPixel * width * height;
  return Math.max(unet, decoder);
}

/**
 * Checks that the weights and one image of the native size fit. Throws model_failed, whose message names the needed and the free memory.
 */
export function checkMemory(folder: DiffusionFolder, availableBytes: number): void {
  const { nativeSize, weightBytes, path } = folder;
  const image = imageBytes(folder, nativeSize, nativeSize);
  const needed = weightBytes * weightFactor + image;
  if (needed <= availableBytes) return;
  const message =
    `"${path}" needs about ${mebibytes(needed)} (weights ${mebibytes(weightBytes)}, an image of ${nativeSize} x ${nativeSize} ` +
    `${mebibytes(image)}), but ${mebibytes(availableBytes)} are free; free memory, or use a smaller model`;
  throw new ServerError("model_failed", message);
}

/** Checks that an image fits. Throws invalid_value for the field `size`. */
export function checkImageMemory(folder: DiffusionFolder, width: number, height: number, availableBytes: number): void {
  const needed = imageBytes(folder, width, height);
  if (needed <= availableBytes) return;
  const message =
    `an image of ${width} x ${height} needs about ${mebibytes(needed)} of memory, but ${mebibytes(availableBytes)} are free; ` +
    "ask for a smaller one";
  throw new ServerError("invalid_value", message, { param: "size" });
}

function mebibytes(bytes: number): string {
  return `${Math.ceil(bytes / 2 ** 20)} MiB`;
}
