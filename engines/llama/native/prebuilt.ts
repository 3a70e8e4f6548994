// Opens the prebuilt llama.cpp libraries for the CPU without node-llama-cpp. This saves one second at start, because
// node-llama-cpp is slow to import and first tests the libraries in a child process.
import { readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname, join } from "node:path";
import koffi, { type LibraryHandle } from "koffi";
import type { Pointer } from "./pointer.ts";

/**
 * Maps libllama and the CPU library variant that ggml chooses for this machine; `log` becomes the log callback. Returns
 * false if npm installed no libraries for this platform, or if they do not load; node-llama-cpp may then find others.
 */
export function openPrebuilt(log: Pointer): boolean {
  const folder = prebuiltFolder();
  if (folder === null) return false;
  const load = (name: string): LibraryHandle => {
    const file = readdirSync(folder).find((one) => isLibrary(one, name));
    return koffi.load(join(folder, file ?? name));
  };
  let llama: LibraryHandle;
  let ggml: LibraryHandle;
  try {
    // Opening either library also maps the other, so either both load or neither does.
    llama = load("llama");
    ggml = load("ggml");
  } catch {
    return false;
  }
  const countDevices = ggml.func("size_t ggml_backend_dev_count()");
  // Registers the CPU only once per process, because a second call would register it twice.
  if (Number(countDevices()) === 0) {
    llama.func("void llama_log_set(void* callback, void* data)")(log, null);
    llama.func("void llama_backend_init()")();
    ggml.func("void ggml_backend_load_all_from_path(str folder)")(folder);
  }
  if (Number(countDevices()) === 0) throw new Error(`no library in ${folder} runs on this CPU`);
  return true;
}

/**
 * Whether the file at `path` is the library `name`. On some platforms file names also contain a version or a variant.
 */
export function isLibrary(path: string, name: string): boolean {
  return new RegExp(`^(lib)?${name}(\\.v?[0-9.]+)?\\.(so|dylib|dll)([.0-9]*)$`, "i").test(basename(path));
}

/**
 * Returns the folder of the libraries; null if there is none. Linux only, because the libraries for other systems
 * always include GPU support.
 */
function prebuiltFolder(): string | null {
  if (process.platform !== "linux") return null;
  const build = `linux-${process.arch === "arm" ? "armv7l" : process.arch}`;
  try {
    // The libraries are optional packages of node-llama-cpp, so npm may have put them into any of several folders.
    const { resolve } = createRequire(import.meta.resolve("node-llama-cpp"));
    return join(dirname(resolve(`@node-llama-cpp/${build}`)), "..", "bins", build);
  } catch {
    return null;
  }
}
