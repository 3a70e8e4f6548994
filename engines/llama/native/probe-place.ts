// Probe process: tries llama.cpp's libraries; started by native-host.ts. A driver that crashes ends only this process.
import type { PlaceContext } from "../../../runtime/thread/entry.ts";
import { openLibrary } from "./library.ts";

export interface NativeProbe {
  /** true: look for a GPU; false: only load the libraries. */
  readonly useGpu: boolean;
}

export interface NativeFindings {
  /** "cuda", "metal" or "vulkan"; null: none. */
  readonly gpu: string | null;
  /** Devices of that backend. */
  readonly devices?: readonly NativeDevice[];
}

export interface NativeDevice {
  readonly name: string;
  readonly totalBytes: number;
  readonly availableBytes: number;
}

/** Rejects if the engine could not load its libraries either. */
export async function start({ init }: PlaceContext<NativeProbe>): Promise<NativeFindings> {
  const library = await openLibrary(init.useGpu);
  const names = init.useGpu ? await library.gpuNames() : [];
  if (names.length === 0) return { gpu: null };
  // The library reports only the memory of all devices together.
  const { gpuBytes, freeBytes } = await library.gpuMemory();
  const share = {
    totalBytes: Math.round(gpuBytes / names.length),
    availableBytes: Math.round(freeBytes / names.length),
  };
  return { gpu: library.backend, devices: names.map((name) => ({ name, ...share })) };
}
