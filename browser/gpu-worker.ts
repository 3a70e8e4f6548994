// GPU worker: web worker that a page starts to run a model on the GPU. The browser loads web-llm only when this worker starts.
import "./node/globals.ts";
import { GpuModel } from "./gpu/gpu-model.ts";
import type { GpuModelToLoad } from "./messages.ts";
import { servePage } from "./serve-page.ts";

servePage<GpuModelToLoad>((model, onProgress) => GpuModel.load(model, onProgress));
