// Keys of diffusion models, which generate images: number of threads and limits. Part of the table in keys.ts.
import type { Key } from "../key.ts";
import { integer, seconds } from "../kinds.ts";

export const diffusionKeys = {
  threads: {
    ...integer(0, 1024),
    default: 0,
    flag: "--diffusion-threads",
    help: "Number of compute threads per diffusion model, at a lower priority than text; 0 = one per physical core, within the CPU quota of a container",
  },
  maxPixels: {
    ...integer(64 * 64, 2 ** 26),
    default: 2 ** 20,
    flag: "--diffusion-max-pixels",
    help: "Maximum number of pixels of an image (width times height); a larger one is refused",
  },
  maxSteps: {
    ...integer(1, 1000),
    default: 100,
    flag: "--diffusion-max-steps",
    help: "Maximum number of denoising steps of an image; more are refused",
  },
  maxQueue: {
    ...integer(0, 4096),
    default: 16,
    flag: "--diffusion-max-queue",
    help: "Maximum number of image requests that wait for a diffusion model; more get 429",
  },
  timeoutSecs: {
    ...seconds(1),
    default: 1800,
    flag: "--diffusion-timeout-secs",
    help: "Maximum time for one image in seconds; beyond it, the request ends with an error between two steps",
  },
} as const satisfies Record<string, Key>;
