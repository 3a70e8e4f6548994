// Native host: finds the GPU that the llama engine can use, and checks whether llama.cpp's libraries load. A
// short-lived child process with a time limit does the check, because the caller must not map native code.
import { readdirSync } from "node:fs";
import { toErrorRecord } from "../../../runtime/errors.ts";
import { installCommand, isInstalled } from "../../../runtime/host/optional-packages.ts";
import { spawnPlace } from "../../../runtime/thread/place.ts";
import type { NativeDevice, NativeFindings, NativeProbe } from "./probe-place.ts";
import { gpuPackage } from "./release.ts";

/**
 * Facts about this machine for the llama engine. They are determined on first use and then kept, except free memory,
 * which is read again after `devicesKeptMs`.
 */
export interface NativeHost {
  /** Returns the backend of the GPU: "cuda", "metal" or "vulkan"; null if there is no GPU. */
  gpu(): Promise<string | null>;
  /** Returns the GPUs that the backend can use, with their free memory, which is cached for `devicesKeptMs`. */
  devices(): Promise<readonly NativeDevice[]>;
  /** Returns the reason why llama.cpp's libraries cannot be loaded; null if they can be loaded. */
  problem(): Promise<string | null>;
  /**
   * Advice for the user how to install the libraries for a GPU; null if they are installed, or if there is no GPU
   * device.
   */
  readonly gpuAdvice: string | null;
}

/** Time limit of the probe process. Loading the drivers of a sleeping GPU takes seconds. */
const probeLimitMs = 30_000;
const probeStopMs = 1000;
/** Time in milliseconds for which the free memory of the GPUs is cached. */
const devicesKeptMs = 10_000;
const probeModule = new URL("./probe-place.js", import.meta.url);

/** Names of GPU device files on Linux. Every GPU that CUDA or Vulkan can use has one of them. */
const gpuDevice = /^(nvidia(ctl|\d+)|nvgpu|nvhost-gpu|nvmap|dxg|kfd|renderD\d+|mali\d+|kgsl-3d\d+)$/;

interface Answer {
  readonly gpu: string | null;
  readonly devices: readonly NativeDevice[];
  readonly problem: string | null;
}

export interface NativeHostOptions {
  readonly probe?: (probe: NativeProbe) => Promise<NativeFindings>;
  readonly mayHaveGpu?: () => boolean;
  /** Whether the libraries for a GPU are installed. */
  readonly hasGpuPackage?: boolean;
  readonly now?: () => number;
}

export function nativeHost(options: NativeHostOptions = {}): NativeHost {
  const { probe = probeInChild, mayHaveGpu = hasGpuDevice, now = () => performance.now() } = options;
  const { hasGpuPackage = isInstalled(gpuPackage) } = options;
  let withGpu: Promise<Answer> | null = null;
  let onCpu: Promise<Answer> | null = null;
  let latest: { readonly answer: Promise<Answer>; readonly at: number } | null = null;
  const askForGpu = (): Promise<Answer> => {
    const answer = answerOf(probe({ useGpu: true }));
    latest = { answer, at: now() };
    return answer;
  };
  const found = (): Promise<Answer> | null => {
    if (withGpu === null && hasGpuPackage && mayHaveGpu()) withGpu = askForGpu();
    return withGpu;
  };
  return {
    gpuAdvice: hasGpuPackage || !mayHaveGpu() ? null : gpuAdvice(),
    gpu: async () => (await found())?.gpu ?? null,
    devices: async () => {
      const first = await found();
      if (first === null || first.gpu === null || latest === null) return first?.devices ?? [];
      const { devices } = await (now() - latest.at < devicesKeptMs ? latest.answer : askForGpu());
      // If this query fails, the GPUs found by the first query are returned with the free memory of that time.
      return devices.length === 0 ? first.devices : devices;
    },
    problem: async () => {
      // If the libraries load with a GPU, they also load without a GPU. If they do not load, the GPU driver may be the
      // cause, so a probe without GPU follows.
      if (withGpu && (await withGpu).problem === null) return null;
      onCpu ??= answerOf(probe({ useGpu: false }));
      return (await onCpu).problem;
    },
  };
}

/** Whether this machine may have a GPU. If false, no probe for a GPU is started. */
function hasGpuDevice(): boolean {
  if (process.platform !== "linux") return true;
  return [...namesIn("/dev"), ...namesIn("/dev/dri")].some((name) => gpuDevice.test(name));
}

function gpuAdvice(): string {
  const command = installCommand([gpuPackage]);
  if (process.platform !== "linux") return `for llama.cpp, and a GPU if there is one: ${command}`;
  return `there is a GPU device, but llama.cpp's libraries for GPUs are not installed (400 MB): ${command}`;
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

async function answerOf(findings: Promise<NativeFindings>): Promise<Answer> {
  try {
    const { gpu, devices = [] } = await findings;
    return { gpu, devices, problem: null };
  } catch (error) {
    return { gpu: null, devices: [], problem: toErrorRecord(error).message };
  }
}

async function probeInChild(init: NativeProbe): Promise<NativeFindings> {
  const place = await spawnPlace<NativeProbe, NativeFindings>({
    name: "native libraries",
    module: probeModule,
    init,
    kind: "process",
    startTimeoutMs: probeLimitMs,
    // Driver output is discarded, because the result already names the problem.
    onOutput: () => {},
  });
  void place.stop(probeStopMs);
  return place.ready;
}
