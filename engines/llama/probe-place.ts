// Owns what runs in the short-lived process that tries llama.cpp's libraries; see native-host.ts, which starts it. A driver
// that crashes here takes nobody along.
import { join } from "node:path";
import type { PlaceContext } from "../../runtime/thread/entry.ts";

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
  if (!init.useGpu && (await loadsAddon())) return { gpu: null };
  const { openLibrary } = await import("./library.ts");
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

/** Maps the library of the prebuilt package, a tenth of the time the engine takes to open it. No is no answer. */
async function loadsAddon(): Promise<boolean> {
  const build = prebuiltName();
  try {
    await import("koffi");
    const { getBinsDir } = (await import(`@node-llama-cpp/${build}`)) as { getBinsDir(): { binsDir: string } };
    process.dlopen({ exports: {} }, join(getBinsDir().binsDir, build, "llama-addon.node"));
    return true;
  } catch {
    return false;
  }
}

function prebuiltName(): string {
  const systems: Readonly<Record<string, string>> = { darwin: "mac", win32: "win" };
  const name = `${systems[process.platform] ?? process.platform}-${process.arch === "arm" ? "armv7l" : process.arch}`;
  return name === "mac-arm64" ? "mac-arm64-metal" : name;
}
