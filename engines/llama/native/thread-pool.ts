// Thread pool: the CPU threads for the passes of a model, kept as long as the model is loaded. Without a pool, a
// llama.cpp built without OpenMP starts new threads for every pass and ends them after it.
import koffi, { type LibraryHandle } from "koffi";
import { ServerError } from "../../../runtime/errors.ts";
import { structsV050 } from "./abi.ts";
import type { Pointer } from "./pointer.ts";

export interface ThreadPool {
  readonly pointer: Pointer;
  /** Ends the threads. Call when no context uses the pool any more. */
  free(): void;
}

/** Starts a pool of `threads` threads; the calling thread is one of them. */
export type StartThreads = (threads: number) => ThreadPool;

const cpuDevice = 0;
/** Polling level 0: threads sleep between passes, because spinning threads would take cores from other work. */
const polling = 0;

/**
 * Binds the functions that create and free thread pools. Their addresses are requested from `ggml`, because only ggml
 * knows which variant of its CPU library it has chosen for this machine.
 */
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
