// Native host: which GPU this host has for the llama engine, and whether llama.cpp's libraries load. Asked before an
// engine is chosen, by a process that must not map native code; so a short-lived child process finds out, under a time
// limit.
import { readdirSync } from "node:fs";
import { toErrorRecord } from "../../../runtime/errors.ts";
import { spawnPlace } from "../../../runtime/thread/place.ts";
import type { NativeDevice, NativeFindings, NativeProbe } from "./probe-place.ts";

/** Answers are found on first use and kept, except free memory, which is read again after a while. */
export interface NativeHost {
  /** Backend of the GPU: "cuda", "metal" or "vulkan"; null: none. */
  gpu(): Promise<string | null>;
  /** Devices of that backend. */
  devices(): Promise<readonly NativeDevice[]>;
  /** Why llama.cpp's libraries cannot be loaded; null if they can. */
  problem(): Promise<string | null>;
}

/** Loading the drivers of a sleeping GPU takes seconds. */
const probeLimitMs = 30_000;
const probeStopMs = 1000;
/** Free memory of devices is cached this long. */
const devicesKeptMs = 10_000;
const probeModule = new URL("./probe-place.js", import.meta.url);

/** Device files on Linux; every GPU that CUDA or Vulkan can use has one of them. */
const gpuDevice = /^(nvidia(ctl|\d+)|nvgpu|nvhost-gpu|nvmap|dxg|kfd|renderD\d+|mali\d+|kgsl-3d\d+)$/;

interface Answer {
  readonly gpu: string | null;
  readonly devices: readonly NativeDevice[];
  readonly problem: string | null;
}

export interface NativeHostOptions {
  readonly probe?: (probe: NativeProbe) => Promise<NativeFindings>;
  readonly mayHaveGpu?: () => boolean;
  readonly now?: () => number;
}

export function nativeHost(options: NativeHostOptions = {}): NativeHost {
  const { probe = probeInChild, mayHaveGpu = hasGpuDevice, now = () => performance.now() } = options;
  let withGpu: Promise<Answer> | null = null;
  let onCpu: Promise<Answer> | null = null;
  let latest: { readonly answer: Promise<Answer>; readonly at: number } | null = null;
  const askForGpu = (): Promise<Answer> => {
    const answer = answerOf(probe({ useGpu: true }));
    latest = { answer, at: now() };
    return answer;
  };
  const found = (): Promise<Answer> | null => {
    if (withGpu === null && mayHaveGpu()) withGpu = askForGpu();
    return withGpu;
  };
  return {
    gpu: async () => (await found())?.gpu ?? null,
    devices: async () => {
      const first = await found();
      if (first === null || first.gpu === null || latest === null) return first?.devices ?? [];
      const { devices } = await (now() - latest.at < devicesKeptMs ? latest.answer : askForGpu());
      // The devices still exist if the query failed this time.
      return devices.length === 0 ? first.devices : devices;
    },
    problem: async () => {
      // If libraries load with a GPU, they load without one; a failure may be the GPU driver's fault.
      if (withGpu && (await withGpu).problem === null) return null;
      onCpu ??= answerOf(probe({ useGpu: false }));
      return (await onCpu).problem;
    },
  };
}

/** Whether a probe for a GPU is worthwhile. */
function hasGpuDevice(): boolean {
  if (process.platform !== "linux") return true;
  return [...namesIn("/dev"), ...namesIn("/dev/dri")].some((name) => gpuDevice.test(name));
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
    carrier: "process",
    startTimeoutMs: probeLimitMs,
    // Driver output does not belong in the log; the answer names the problem.
    onOutput: () => {},
  });
  void place.stop(probeStopMs);
  return place.ready;
}
