// Owns what is said of the machine and of this build: the words for it, and what the operating system tells of itself. What
// it takes an engine, a child process or a setting to know is put together by cli/; http/ only writes it down.
import { readFileSync } from "node:fs";
import { cpus, freemem, machine, release, totalmem, type } from "node:os";

export interface Device {
  /** "cpu", "cuda", "metal" or "vulkan". */
  readonly kind: string;
  /** Counted from 0 among those of its kind. */
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
  /** null where nothing tells. */
  readonly gitRevision: string | null;
  /** What the native libraries that are installed can compute on. */
  readonly cuda: boolean;
  readonly metal: boolean;
}

/** Estimates of a model in one engine, from a trial. Speeds in tokens/s; null for an encoder, which does not decode. */
export interface TrialReport {
  /** Prompt tokens of one sequence; of an encoder, tokens of texts. */
  readonly prompt: number;
  /** New tokens of one sequence. */
  readonly oneRow: number | null;
  /** New tokens of 16 sequences together. */
  readonly sixteenRows: number | null;
  /** Memory that the weights take. */
  readonly weightBytes: number;
}

/** Which engine runs a model, and why. */
export interface EngineReport {
  readonly model: string;
  readonly engine: string;
  readonly reason: string;
  /** By engine; null without a trial, or where it failed. */
  readonly figures: Readonly<Record<string, TrialReport>> | null;
  /** What would make the model faster on this machine; null for nothing that is known. */
  readonly advice: string | null;
}

export interface SystemInfo {
  readonly host: HostFacts;
  readonly physicalCores: number;
  readonly devices: readonly Device[];
  readonly build: BuildFacts;
  readonly hubCache: string;
  /** Of each model that is served or asked for. */
  readonly engines: readonly EngineReport[];
}

export interface Check {
  readonly name: string;
  readonly status: "ok" | "warn" | "error";
  readonly message: string;
  /** What to do, where something is to be done. */
  readonly suggestion?: string;
}

export interface Diagnosis {
  readonly system: SystemInfo;
  readonly checks: readonly Check[];
}

/** Both are found out when asked for, without keeping the thread that asks. */
export interface SystemInspector {
  info(): Promise<SystemInfo>;
  diagnose(): Promise<Diagnosis>;
}

/** Knows what the operating system tells, and checks nothing: for where nobody brings another one. */
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

/** What does not change while the process lives. On a machine of many cores it takes milliseconds to read. */
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

/** Less than the machine has, where this process may not use it all. */
function memoryFacts(): HostFacts["memory"] {
  const limit = process.constrainedMemory() || Number.POSITIVE_INFINITY;
  const totalBytes = Math.min(totalmem(), limit);
  return { totalBytes, availableBytes: Math.min(process.availableMemory?.() ?? freemem(), totalBytes) };
}

/** The instruction sets of the first core in a /proc/cpuinfo, by default this machine's; none where there is no such file. */
export function cpuFlags(cpuinfo = readText("/proc/cpuinfo")): ReadonlySet<string> {
  const [, flags] = /^(?:flags|Features)\s*:\s*(.+)$/m.exec(cpuinfo) ?? [];
  return new Set(flags?.split(" "));
}

/** What an /etc/os-release calls its system; else the platform. */
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
