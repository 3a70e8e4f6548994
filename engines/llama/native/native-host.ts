// Owns the question what this host has for the llama engine: a GPU, and libraries that load. Asked before an engine is chosen,
// by a process that must have no native code in it; so a child process of its own finds out, under a time limit, and dies.
import { readdirSync } from "node:fs";
import { toErrorRecord } from "../../../runtime/errors.ts";
import { spawnPlace } from "../../../runtime/thread/place.ts";
import type { NativeDevice, NativeFindings, NativeProbe } from "./probe-place.ts";

/** Every answer is found when it is asked for, and once; but how much memory is free, again after a while. */
export interface NativeHost {
  /** What llama.cpp would compute on beside the CPU: "cuda", "metal" or "vulkan"; null for nothing. */
  gpu(): Promise<string | null>;
  /** The devices that `gpu` is the kind of. */
  devices(): Promise<readonly NativeDevice[]>;
  /** Why llama.cpp's libraries cannot be loaded; null where they can. */
  problem(): Promise<string | null>;
}

/** Loading the drivers of a GPU that is asleep takes seconds. */
const probeLimitMs = 30_000;
const probeStopMs = 1000;
/** What is said of devices holds for so long. */
const devicesKeptMs = 10_000;
const probeModule = new URL("./probe-place.js", import.meta.url);

/** Device files on Linux of which every GPU that CUDA or Vulkan can use has one. */
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
      // They are there all the same where it did not work this time.
      return devices.length === 0 ? first.devices : devices;
    },
    problem: async () => {
      // A yes holds without a GPU too; a no may be the fault of a driver.
      if (withGpu && (await withGpu).problem === null) return null;
      onCpu ??= answerOf(probe({ useGpu: false }));
      return (await onCpu).problem;
    },
  };
}

/** Whether it is worth asking. */
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
    // What a driver prints while it is tried is not for the log: the answer says what is wrong.
    onOutput: () => {},
  });
  void place.stop(probeStopMs);
  return place.ready;
}
