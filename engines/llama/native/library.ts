// llama.cpp libraries with their C API bound, opened once per process (or worker thread). Prebuilt libraries for the
// CPU on Linux are installed with troupe and opened directly (prebuilt.ts). node-llama-cpp, installed on request,
// chooses a build for a GPU or another system. Nothing is compiled or downloaded.
import koffi from "koffi";
import { ServerError } from "../../../runtime/errors.ts";
import { computeCores } from "../../../runtime/host/cores.ts";
import { installCommand, isInstalled } from "../../../runtime/host/optional-packages.ts";
import { createTensorReader, type TensorReader } from "../calibration/tensor-abi.ts";
import { bindingOf, type LlamaFunctions } from "./abi.ts";
import { limitNativeHeap } from "./memory/native-heap.ts";
import type { Pointer } from "./pointer.ts";
import { isLibrary, openPrebuilt } from "./prebuilt.ts";
import { bundledRelease, gpuPackage } from "./release.ts";
import { bindThreadPools, type StartThreads } from "./thread-pool.ts";

/** Compute devices that the libraries use. */
interface Devices {
  /** Compute backend: "cpu", "cuda", "metal" or "vulkan". */
  readonly backend: string;
  /** Number of cores for computing, without the efficiency cores of a hybrid CPU. */
  readonly mathCores: number;
  /** Returns total and free memory of the GPU in bytes. */
  gpuMemory(): Promise<{ readonly gpuBytes: number; readonly freeBytes: number }>;
  gpuNames(): Promise<readonly string[]>;
}

export interface LlamaLibrary extends Devices {
  readonly functions: LlamaFunctions;
  readonly release: string;
  /** Path of the llama.cpp library that is mapped into the process. */
  readonly path: string;
  /**
   * Runs `body` and passes it the native log lines as they arrive. Outside of `body`, native log lines are discarded.
   * Use it only while loading, on the loading thread.
   */
  withLog<T>(body: (lines: readonly string[]) => T): T;
  readonly startThreads: StartThreads;
  /** Creates a reader for the tensors of a pass. */
  tensorReader(): TensorReader;
  /**
   * Address of the C function `strlen`, used as an abort callback on a flag byte: the result is 0 (continue) if the byte is 0, and not 0
   * (abort) otherwise.
   */
  readonly flagIsSet: Pointer;
}

// Stack size for native calls. llama_decode builds its graph on the stack of the call. The default of 1 MiB is barely
// enough for models with many layers.
const nativeStackBytes = 8 * 1024 * 1024;
const logLinesKept = 64;
/** Log level DEBUG of ggml, at which it logs one line per tensor. */
const debugLevel = 1;
const keptHeapBytes = 32 * 1024 * 1024;
// The type is created only once, because koffi never frees a type.
const logCallback = koffi.pointer(koffi.proto("void", ["int32", "str", "void*"]));

const open = new Map<boolean, Promise<LlamaLibrary>>();

/**
 * Opens the libraries for a CPU-only or an accelerated run; later calls return the same libraries. Throws
 * `config_invalid`.
 */
export function openLibrary(useGpu: boolean): Promise<LlamaLibrary> {
  let library = open.get(useGpu);
  if (!library) {
    library = load(useGpu);
    open.set(useGpu, library);
  }
  return library;
}

async function load(useGpu: boolean): Promise<LlamaLibrary> {
  const release = bundledRelease();
  if (release === null) throw notInstalled();
  const bind = bindingOf(release);
  koffi.config({ ...koffi.config(), sync_stack_size: nativeStackBytes });
  const libc = koffi.load(libcName());
  // `abs` ignores pointer arguments, so it serves as a log callback in C that is safe on every thread. node-llama-cpp
  // installs a JS callback, which would block or abort if called from a compute thread. Therefore `abs` is set after
  // node-llama-cpp is loaded.
  const silent = libc.symbol("abs");
  const devices = await openDevices(useGpu, silent).catch(notLoaded);
  const path = findLibrary("llama");
  const functions = bind(koffi.load(path));
  functions.logSet(silent, null);
  await limitNativeHeap(keptHeapBytes);
  return {
    ...devices,
    functions,
    release,
    path,
    withLog: (body) => collectLog(functions, silent, body),
    tensorReader: () => createTensorReader(koffi.load(findLibrary("ggml-base"))),
    startThreads: bindThreadPools(koffi.load(findLibrary("ggml")), koffi.load(findLibrary("ggml-base"))),
    flagIsSet: libc.symbol("strlen"),
  };
}

async function openDevices(useGpu: boolean, log: Pointer): Promise<Devices> {
  // Without node-llama-cpp there is no library for a GPU; `gpuAdvice` of native-host.ts tells the user.
  if ((!useGpu || !isInstalled(gpuPackage)) && openPrebuilt(log)) {
    const gpuMemory = async () => ({ gpuBytes: 0, freeBytes: 0 });
    return { backend: "cpu", mathCores: computeCores(), gpuMemory, gpuNames: async () => [] };
  }
  if (!isInstalled(gpuPackage)) throw notInstalled();
  const { getLlama } = await import("node-llama-cpp");
  const gpu = useGpu ? "auto" : false;
  const llama = await getLlama({ gpu, build: "never", skipDownload: true, progressLogs: false });
  // A backend may load without any GPU, for example Vulkan with a software renderer. All layers then stay on the CPU.
  const names = llama.gpu === false ? [] : await llama.getGpuDeviceNames();
  return {
    backend: llama.gpu === false || names.length === 0 ? "cpu" : llama.gpu,
    mathCores: llama.cpuMathCores,
    gpuMemory: async () => {
      const { total, free } = await llama.getVramState();
      return { gpuBytes: total, freeBytes: free };
    },
    gpuNames: async () => names,
  };
}

function notInstalled(): ServerError {
  const message =
    `llama.cpp has no library installed that loads on ${process.platform}-${process.arch}: ` +
    `${installCommand([gpuPackage])}; the wasm engine needs none`;
  return new ServerError("config_invalid", message, { param: "engine" });
}

function notLoaded(cause: Error): never {
  if (cause instanceof ServerError) throw cause;
  const message =
    `llama.cpp's libraries do not load on ${process.platform}-${process.arch} (${cause.message}); ` +
    `others may: ${installCommand([gpuPackage])}; the wasm engine needs none`;
  throw new ServerError("config_invalid", message, { param: "engine", cause });
}

/** Returns the path of a mapped library, given its name without prefix, version and extension. */
function findLibrary(name: string): string {
  const report = process.report.getReport() as { sharedObjects?: string[] };
  const found = report.sharedObjects?.find((path) => isLibrary(path, name));
  if (found) return found;
  throw new ServerError(
    "config_invalid",
    `the llama.cpp library "${name}" is not mapped after loading it on ${process.platform}-${process.arch}; ` +
      "install troupe again with its optional packages (they contain the libraries), or choose another engine",
  );
}

function libcName(): string {
  if (process.platform === "darwin") return "libSystem.dylib";
  if (process.platform === "win32") return "ucrtbase.dll";
  return isMusl() ? "libc.so" : "libc.so.6";
}

function isMusl(): boolean {
  const { header } = process.report.getReport() as { header?: { glibcVersionRuntime?: string } };
  return header?.glibcVersionRuntime === undefined;
}

function collectLog<T>(functions: LlamaFunctions, silent: Pointer, body: (lines: readonly string[]) => T): T {
  const lines: string[] = [];
  const keep = (level: number, text: string) => {
    if (level === debugLevel) return;
    lines.push(text.trimEnd());
    if (lines.length > logLinesKept) lines.shift();
  };
  const callback = koffi.register(keep, logCallback);
  functions.logSet(callback, null);
  try {
    return body(lines);
  } finally {
    functions.logSet(silent, null);
    koffi.unregister(callback);
  }
}

/** Returns the last three lines of a native log that describe an error (or its last three lines if none does), joined by "; ". */
export function lastWords(lines: readonly string[]): string {
  const errors = lines.filter((line) => /error|fail|invalid|unknown|unsupported|missing/i.test(line));
  return (errors.length > 0 ? errors : lines).slice(-3).join("; ") || "it gave no reason";
}
