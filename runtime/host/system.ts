// System information: its types, and the facts that come from the operating system. cli/ adds facts about engines, child
// processes and settings. http/ sends them.
import { readFileSync } from "node:fs";
import { cpus, machine, release, type } from "node:os";
import { availableMemory, totalMemory } from "./memory.ts";

export interface Device {
  /** Kind of the device: "cpu", "cuda", "metal" or "vulkan". */
  readonly kind: string;
  /** Index among the devices of the same kind, from 0. */
  readonly ordinal: number;
  readonly name: string;
  readonly totalBytes: number;
  readonly availableBytes: number;
}

export interface HostFacts {
  readonly os: string;
  readonly kernel: string;
  readonly cpu: {
    readonly brand: string;
    readonly logicalCores: number;
    readonly avx: boolean;
    readonly avx2: boolean;
    readonly avx512: boolean;
    readonly fma: boolean;
  };
  readonly memory: { readonly totalBytes: number; readonly availableBytes: number };
}

export interface BuildFacts {
  readonly version: string;
  /** Git revision of the program; null if unknown. */
  readonly gitRevision: string | null;
  /** Whether the installed native libraries support CUDA and Metal. */
  readonly cuda: boolean;
  readonly metal: boolean;
}

/**
 * Estimates for a model on one engine, measured in a trial. Speeds are in tokens/s; null for an encoder, which does not decode.
 */
export interface TrialReport {
  /** Prefill speed of one sequence, in prompt tokens/s. For an encoder: tokens/s of the encoded texts. */
  readonly prompt: number;
  /** Decode speed of one sequence in tokens/s; null for an encoder. */
  readonly oneRow: number | null;
  /** Total decode speed of 16 sequences in one batch, in tokens/s; null for an encoder. */
  readonly sixteenRows: number | null;
  /** Memory of the weights in bytes. */
  readonly weightBytes: number;
}

/** The engine chosen for a model, and the reason for the choice. */
export interface EngineReport {
  readonly model: string;
  readonly engine: string;
  readonly reason: string;
  /** Trial results by engine; null if there was no trial, or it failed. */
  readonly figures: Readonly<Record<string, TrialReport>> | null;
  /** Advice on how the model could run faster on this machine; null if none is known. */
  readonly advice: string | null;
}

export interface SystemInfo {
  readonly host: HostFacts;
  readonly physicalCores: number;
  readonly devices: readonly Device[];
  readonly build: BuildFacts;
  readonly hubCache: string;
  /** One report for each model that is served or requested. */
  readonly engines: readonly EngineReport[];
}

export interface Check {
  readonly name: string;
  readonly status: "ok" | "warn" | "error";
  readonly message: string;
  /** Advice for the user; absent if the user need not do anything. */
  readonly suggestion?: string;
}

export interface Diagnosis {
  readonly system: SystemInfo;
  readonly checks: readonly Check[];
}

/** Collects the system information. `info` and `diagnose` read it anew at each call, without blocking the calling thread. */
export interface SystemInspector {
  info(): Promise<SystemInfo>;
  diagnose(): Promise<Diagnosis>;
}

/** Returns the default inspector. It reports facts from the operating system only and makes no checks. */
export function bareInspector(hubCache = ""): SystemInspector {
  const info = async (): Promise<SystemInfo> => {
    const host = hostFacts();
    const build = { version: "unknown", gitRevision: null, cuda: false, metal: false };
    return { host, physicalCores: host.cpu.logicalCores, devices: [], build, hubCache, engines: [] };
  };
  return { info, diagnose: async () => ({ system: await info(), checks: [] }) };
}

export function hostFacts(): HostFacts {
  lasting ??= lastingFacts();
  return { ...lasting, memory: memoryFacts() };
}

/**
 * Facts that do not change while the process runs. They are cached, because reading them takes
 * milliseconds on a machine with many cores.
 */
let lasting: Omit<HostFacts, "memory"> | null = null;

function lastingFacts(): Omit<HostFacts, "memory"> {
  const cores = cpus();
  const flags = cpuFlags();
  return {
    os: osName(readText("/etc/os-release")),
    kernel: `${type()} ${release()} ${machine()}`,
    cpu: {
      brand: cores[0]?.model.trim() || "unknown",
      logicalCores: cores.length,
      avx: flags.has("avx"),
      avx2: flags.has("avx2"),
      avx512: flags.has("avx512f"),
      fma: flags.has("fma"),
    },
  };
}

/** Returns memory facts, limited to what this process may use. */
function memoryFacts(): HostFacts["memory"] {
  const totalBytes = totalMemory();
  return { totalBytes, availableBytes: Math.min(availableMemory(), totalBytes) };
}

/**
 * Returns the instruction sets of the first core listed in a /proc/cpuinfo text (default: this
 * machine's). Empty if the file is missing.
 */
export function cpuFlags(cpuinfo = readText("/proc/cpuinfo")): ReadonlySet<string> {
  const [, flags] = /^(?:flags|Features)\s*:\s*(.+)$/m.exec(cpuinfo) ?? [];
  return new Set(flags?.split(" "));
}

/** Returns the system's name from the text of /etc/os-release; the platform if the text has no name. */
export function osName(osRelease: string): string {
  const [, name] = /^PRETTY_NAME="?([^"\n]+)"?$/m.exec(osRelease) ?? [];
  return name ?? process.platform;
}

function readText(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
