// Owns the threads that a model's passes compute with on the CPU, from its load to its end. Left to itself a llama.cpp that
// was built without OpenMP starts them for every pass and ends them with it.
import koffi, { type LibraryHandle } from "koffi";
import { ServerError } from "../../../runtime/errors.ts";
import { structsV050 } from "./abi.ts";
import type { Pointer } from "./pointer.ts";

export interface ThreadPool {
  readonly pointer: Pointer;
  /** To be called when no context uses them any more. */
  free(): void;
}

/** Starts so many threads, of which the one that calls for a pass is one. */
export type StartThreads = (threads: number) => ThreadPool;

const cpuDevice = 0;
/** Threads sleep between passes: what spins there takes cores from whatever else is to be done meanwhile. */
const polling = 0;

/** The functions stand in the library for this machine's CPU, whose name only `ggml` knows; it hands them out. */
export function bindThreadPools(ggml: LibraryHandle, ggmlBase: LibraryHandle): StartThreads {
  const { threadPoolParams } = structsV050();
  const newPool = koffi.proto("void*", [koffi.pointer(threadPoolParams)]);
  const freePool = koffi.proto("void", ["void*"]);
  const deviceByType = ggml.func("ggml_backend_dev_by_type", "void*", ["int32"]);
  const registryOf = ggmlBase.func("ggml_backend_dev_backend_reg", "void*", ["void*"]);
  const addressOf = ggmlBase.func("ggml_backend_reg_get_proc_address", "void*", ["void*", "str"]);
  const defaults = ggmlBase.func("ggml_threadpool_params_default", threadPoolParams, ["int32"]);
  const find = (name: string): Pointer => {
    const address: Pointer = addressOf(registryOf(deviceByType(cpuDevice)), name);
    if (address) return address;
    throw new ServerError("config_invalid", `llama.cpp's CPU library has no "${name}"; reinstall with \`npm ci\``);
  };
  return (threads) => {
    const params = { ...(defaults(threads) as object), poll: polling };
    const pointer: Pointer = koffi.call(find("ggml_threadpool_new"), newPool, params);
    return { pointer, free: () => koffi.call(find("ggml_threadpool_free"), freePool, pointer) };
  };
}
