// Prebuilt llama.cpp libraries for the CPU, opened without the package node-llama-cpp. That package is slow to import,
// first tests the libraries in a child process, and is installed only on request.
import { readdirSync } from "node:fs";
import { basename, join } from "node:path";
import koffi, { type LibraryHandle } from "koffi";
import type { Pointer } from "./pointer.ts";
import { prebuiltFolder } from "./release.ts";

/**
 * Maps libllama and the variant of the CPU library that ggml chooses for this machine. `log` becomes the log callback. Returns false if npm
 * installed no libraries for this platform, or if they do not load. In that case, node-llama-cpp may still find libraries.
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
    // Each of the two libraries maps the other one when it is opened, so both load or both fail.
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
 * Whether the file at `path` is the library `name`. File names may also contain the backend and the version: the library
 * "llama" is libllama.so, llama.dll or libllama.cuda.v0.5.0.so.
 */
export function isLibrary(path: string, name: string): boolean {
  return new RegExp(`^(lib)?${name}(\\.[a-z]+)?(\\.v?[0-9.]+)?\\.(so|dylib|dll)([.0-9]*)$`, "i").test(basename(path));
}
