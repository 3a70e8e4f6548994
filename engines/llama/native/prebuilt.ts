// Prebuilt llama.cpp libraries for the CPU, opened without node-llama-cpp, whose import and library check in a child
// process take one second.
import { readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname, join } from "node:path";
import koffi, { type LibraryHandle } from "koffi";
import type { Pointer } from "./pointer.ts";

/**
 * Maps libllama and the CPU library variant that ggml chooses for this machine; `log` becomes the log callback. Returns
 * false if npm installed no libraries for this platform, or they do not load: node-llama-cpp may find others.
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
    // Loading one maps the other too; either both load or neither.
    llama = load("llama");
    ggml = load("ggml");
  } catch {
    return false;
  }
  const countDevices = ggml.func("size_t ggml_backend_dev_count()");
  // Once per process: a second call would register the CPU twice.
  if (Number(countDevices()) === 0) {
    llama.func("void llama_log_set(void* callback, void* data)")(log, null);
    llama.func("void llama_backend_init()")();
    ggml.func("void ggml_backend_load_all_from_path(str folder)")(folder);
  }
  if (Number(countDevices()) === 0) throw new Error(`no library in ${folder} runs on this CPU`);
  return true;
}

/** Whether a file is the library of this plain name. File names carry a version or a variant on some platforms. */
export function isLibrary(path: string, name: string): boolean {
  return new RegExp(`^(lib)?${name}(\\.v?[0-9.]+)?\\.(so|dylib|dll)([.0-9]*)$`, "i").test(basename(path));
}

/**
 * Folder of the libraries; null if there is none. Linux only: other systems have one set of libraries that includes the
 * GPU's.
 */
function prebuiltFolder(): string | null {
  if (process.platform !== "linux") return null;
  const build = `linux-${process.arch === "arm" ? "armv7l" : process.arch}`;
  try {
    // They are optional packages of node-llama-cpp, in whatever folder npm put them.
    const { resolve } = createRequire(import.meta.resolve("node-llama-cpp"));
    return join(dirname(resolve(`@node-llama-cpp/${build}`)), "..", "bins", build);
  } catch {
    return null;
  }
}
