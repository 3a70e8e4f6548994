// Owns what runs in the short-lived process that tries llama.cpp's libraries; see native-host.ts, which starts it. A driver
// that crashes here takes nobody along.
import type { PlaceContext } from "../../../runtime/thread/entry.ts";
import { openLibrary } from "./library.ts";

export interface NativeProbe {
  /** Whether to look for a GPU, or else only try whether the libraries load. */
  readonly useGpu: boolean;
}

export interface NativeFindings {
  /** "cuda", "metal" or "vulkan"; null for none. */
  readonly gpu: string | null;
  /** The devices behind it. */
  readonly devices?: readonly NativeDevice[];
}

export interface NativeDevice {
  readonly name: string;
  readonly totalBytes: number;
  readonly availableBytes: number;
}

/** Rejects where the engine could not load its libraries either. */
export async function start({ init }: PlaceContext<NativeProbe>): Promise<NativeFindings> {
  const library = await openLibrary(init.useGpu);
  const names = init.useGpu ? await library.gpuNames() : [];
  if (names.length === 0) return { gpu: null };
  // The library tells the memory of all of them together, and no more.
  const { gpuBytes, freeBytes } = await library.gpuMemory();
  const share = {
    totalBytes: Math.round(gpuBytes / names.length),
    availableBytes: Math.round(freeBytes / names.length),
  };
  return { gpu: library.backend, devices: names.map((name) => ({ name, ...share })) };
}
