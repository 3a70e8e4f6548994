// Probe process: tries to load llama.cpp's libraries. Started by native-host.ts. If a driver crashes, only this process
// ends.
import type { PlaceContext } from "../../../runtime/thread/entry.ts";
import { openLibrary } from "./library.ts";

export interface NativeProbe {
  /** true: look for a GPU; false: only load the libraries. */
  readonly useGpu: boolean;
}

export interface NativeFindings {
  /** Backend of the GPU: "cuda", "metal" or "vulkan"; null: there is no GPU. */
  readonly gpu: string | null;
  /** Devices of the GPU's backend. */
  readonly devices?: readonly NativeDevice[];
}

export interface NativeDevice {
  readonly name: string;
  readonly totalBytes: number;
  readonly availableBytes: number;
}

/**
 * Loads the libraries and describes the GPU. Rejects if they do not load, because then the engine cannot load them
 * either.
 */
export async function start({ init }: PlaceContext<NativeProbe>): Promise<NativeFindings> {
  const library = await openLibrary(init.useGpu);
  const names = init.useGpu ? await library.gpuNames() : [];
  if (names.length === 0) return { gpu: null };
  // The library reports only the total memory of all devices, so each device is given an equal share.
  const { gpuBytes, freeBytes } = await library.gpuMemory();
  const share = {
    totalBytes: Math.round(gpuBytes / names.length),
    availableBytes: Math.round(freeBytes / names.length),
  };
  return { gpu: library.backend, devices: names.map((name) => ({ name, ...share })) };
}
