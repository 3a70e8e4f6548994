// Page worker: web worker that a page starts to run a model on the CPU. It leads the engine's compute threads.
import "./node/globals.ts";
import sampler from "../dist/engines/decoding/sampler/sampler.wasm?url";
import plainKernels from "../dist/engines/wasm/kernels/kernels-plain.wasm?url";
import relaxedKernels from "../dist/engines/wasm/kernels/kernels-relaxed.wasm?url";
import { ServerError } from "../runtime/errors.ts";
import { LocalModel } from "./local-model.ts";
import type { ModelToLoad } from "./messages.ts";
import { addFile } from "./node/files.ts";
import { servePage } from "./serve-page.ts";

/** WebAssembly modules, by the file names that the engine uses. */
const modules = {
  "kernels-relaxed.wasm": relaxedKernels,
  "kernels-plain.wasm": plainKernels,
  "sampler.wasm": sampler,
};

servePage<ModelToLoad>(async (wanted, onProgress) => {
  try {
    await Promise.all(Object.entries(modules).map(([name, url]) => fetchModule(name, url)));
    addFile(wanted.name, wanted.file);
    return await LocalModel.load(wanted, onProgress);
  } catch (error) {
    throw error instanceof RangeError ? noMemory(error) : inPageWords(error);
  }
});

/** Creates the error for a RangeError, by which WebAssembly and the browser report that memory is exhausted. */
function noMemory(cause: RangeError): ServerError {
  const message = "the browser has no memory for this: choose a smaller model, fewer threads or a shorter conversation";
  return new ServerError("config_invalid", message, { cause });
}

/** Replaces the advice in an engine error, which refers to settings of a server, by advice for the page. */
function inPageWords(error: unknown): unknown {
  if (!(error instanceof ServerError) || error.code !== "config_invalid") return error;
  const [problem = ""] = error.message.split(";");
  return new ServerError(
    "config_invalid",
    `${problem}; choose a smaller model, or other threads and tokens on this page`,
  );
}

async function fetchModule(name: string, url: string): Promise<void> {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url} could not be loaded: status ${response.status}`);
  addFile(name, await response.blob());
}
