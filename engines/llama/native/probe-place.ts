// Probe process: tries to load llama.cpp's libraries. Started by native-host.ts. If a driver crashes, only this process
// ends.
import type { PlaceContext } from "../../../runtime/thread/entry.ts";
import { openLibrary } from "./library.ts";

export interface NativeProbe {
  /** true: look for a GPU; false: only load the libraries. */
  readonly useGpu: boolean;
}

export interface NativeFindings {
  /** Backend of the GPU: "cuda", "metal" or "vulkan"; null if there is no GPU. */
  readonly gpu: string | null;
  /** GPUs that the backend can use; absent if there is no GPU. */
  readonly devices?: readonly NativeDevice[];
}

export interface NativeDevice {
  readonly name: string;
  readonly totalBytes: number;
  readonly availableBytes: number;
}

/**
 * Loads the libraries and describes the GPUs. Rejects if the libraries do not load: then the engine cannot load them
 * either.
 */
export async function start({ init }: PlaceContext<NativeProbe>): Promise<NativeFindings> {
  const library = await openLibrary(init.useGpu);
  const names = init.useGpu ? await library.gpuNames() : [];
  if (names.length === 0) return { gpu: null };
  // The library reports only the memory of all GPUs together, so each GPU is reported with an equal share.
  const { gpuBytes, freeBytes } = await library.gpuMemory();
  const share = {
    totalBytes: Math.round(gpuBytes / names.length),
    availableBytes: Math.round(freeBytes / names.length),
  };
  return { gpu: library.backend, devices: names.map((name) => ({ name, ...share })) };
}
