// GPU of this machine, accessed by WebGPU.

import { t } from "../base/language.ts";
import { LocalError } from "./engine.ts";
import { canStore } from "./model-storage.ts";

export type GpuObstacle = "noStorage" | "noWebGpu" | "noAdapter";

/** Returns why this page cannot run a model on the GPU; null: it can. */
export async function gpuObstacle(): Promise<GpuObstacle | null> {
  if (navigator.gpu === undefined) return "noWebGpu";
  if ((await adapter()) === null) return "noAdapter";
  return canStore() ? null : "noStorage";
}

/** Throws LocalError if the GPU does not support a quantization, such as q4f16_1. */
export async function checkQuantization(quantization: string): Promise<void> {
  if (!quantization.includes("f16") || (await adapter())?.features.has("shader-f16")) return;
  throw new LocalError(t("noShaderF16", { quantization }));
}

async function adapter(): Promise<GPUAdapter | null> {
  return (await navigator.gpu?.requestAdapter({ powerPreference: "high-performance" })) ?? null;
}
