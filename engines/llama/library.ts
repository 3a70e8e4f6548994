// Owns finding and opening the llama.cpp libraries: node-llama-cpp ships them prebuilt and picks the variant for this
// machine; this file asks it to, takes the paths it mapped, and binds the C API. Once per process (or worker thread).
// It never builds, downloads or registers a backend itself.
import { basename } from "node:path";
import koffi from "koffi";
import { getLlama } from "node-llama-cpp";
import { ServerError } from "../../runtime/errors.ts";
import { bindingOf, type LlamaFunctions, type Pointer } from "./abi.ts";
import { limitNativeHeap } from "./native-heap.ts";
import { bundledRelease } from "./release.ts";
import { bindThreadPools, type StartThreads } from "./thread-pool.ts";

export interface LlamaLibrary {
  readonly functions: LlamaFunctions;
  readonly release: string;
  /** Path of the mapped library. */
  readonly path: string;
  /** "cpu", "cuda", "metal" or "vulkan". */
  readonly backend: string;
  /** Performance cores: without the efficiency cores of a hybrid CPU. */
  readonly mathCores: number;
  /** The GPU's memory, in all and unused. */
  gpuMemory(): Promise<{ readonly gpuBytes: number; readonly freeBytes: number }>;
  gpuNames(): Promise<readonly string[]>;
  /** Runs `body` with native log lines collected; outside of it they go nowhere. Only while loading, on the loading thread. */
  withLog<T>(body: (lines: readonly string[]) => T): T;
  readonly startThreads: StartThreads;
  /** Address of a C function `strlen`: as an abort callback it is true while the flag byte it is given is not 0. */
  readonly flagIsSet: Pointer;
}

// A llama_decode builds its graph on the stack of the call; the default of 1 MiB is tight for deep models.
const nativeStackBytes = 8 * 1024 * 1024;
const logLinesKept = 64;
const keptHeapBytes = 32 * 1024 * 1024;
// Made once: koffi keeps every type for ever.
const logCallback = koffi.pointer(koffi.proto("void", ["int32", "str", "void*"]));

const open = new Map<boolean, Promise<LlamaLibrary>>();

/** The libraries for a CPU-only or an accelerated run; opened at the first call. Throws `config_invalid`. */
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
  const bind = bindingOf(release);
  const llama = await getLlama({
    gpu: useGpu ? "auto" : false,
    build: "never",
    skipDownload: true,
    progressLogs: false,
  }).catch(notLoaded);
  koffi.config({ ...koffi.config(), sync_stack_size: nativeStackBytes });
  const path = findLibrary("llama");
  const functions = bind(koffi.load(path));
  const libc = koffi.load(libcName());
  // `abs` ignores its pointer arguments: a log callback in C that is safe from every thread. node-llama-cpp installs a
  // JS one, which would block or abort when called from a compute thread, so ours must come after it.
  const silent = libc.symbol("abs");
  functions.logSet(silent, null);
  await limitNativeHeap(keptHeapBytes);
  return {
    functions,
    release,
    path,
    backend: llama.gpu === false ? "cpu" : llama.gpu,
    mathCores: llama.cpuMathCores,
    gpuMemory: async () => {
      const { total, free } = await llama.getVramState();
      return { gpuBytes: total, freeBytes: free };
    },
    gpuNames: () => llama.getGpuDeviceNames(),
    withLog: (body) => collectLog(functions, silent, body),
    startThreads: bindThreadPools(koffi.load(findLibrary("ggml")), koffi.load(findLibrary("ggml-base"))),
    flagIsSet: libc.symbol("strlen"),
  };
}

function notLoaded(cause: Error): never {
  const message =
    `llama.cpp's libraries do not load on ${process.platform}-${process.arch} (${cause.message}); ` +
    "`npm ci` installs the prebuilt ones where there are any, and the wasm engine needs none";
  throw new ServerError("config_invalid", message, { param: "engine", cause });
}

/** Path of a library this process has mapped, by its plain name: names carry a version or a variant on some platforms. */
function findLibrary(name: string): string {
  const report = process.report.getReport() as { sharedObjects?: string[] };
  const mapped = report.sharedObjects ?? [];
  const pattern = new RegExp(`^(lib)?${name}(\\.v?[0-9.]+)?\\.(so|dylib|dll)([.0-9]*)$`, "i");
  const found = mapped.find((path) => pattern.test(basename(path)));
  if (found) return found;
  throw new ServerError(
    "config_invalid",
    `the llama.cpp library "${name}" is not mapped after loading node-llama-cpp on ${process.platform}-${process.arch}; ` +
      "reinstall with `npm ci` (its optional packages carry the libraries), or choose another engine",
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
  const keep = (_level: number, text: string) => {
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

/** The lines of a native log that say what went wrong. */
export function lastWords(lines: readonly string[]): string {
  const errors = lines.filter((line) => /error|fail|invalid|unknown|unsupported|missing/i.test(line));
  return (errors.length > 0 ? errors : lines).slice(-3).join("; ") || "it gave no reason";
}
