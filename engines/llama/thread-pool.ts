// Owns the compute threads of one context: kept from pass to pass, where llama.cpp would otherwise start and join them for
// each. They watch for work for a fraction of a second after a pass, so only a model with its cores to itself may have them.
import type { LibraryHandle } from "koffi";
import type { Pointer } from "./abi.ts";

export interface ThreadPools {
  create(threads: number): Pointer;
  free(pool: Pointer): void;
}

/** Larger than ggml_threadpool_params of any release; only the library reads or writes it. */
const paramsBytes = 4096;

/** `base` and `cpu` are ggml's libraries of these names. */
export function bindThreadPools(base: LibraryHandle, cpu: LibraryHandle): ThreadPools {
  const initParams = base.func("ggml_threadpool_params_init", "void", ["void*", "int32"]);
  const create = cpu.func("ggml_threadpool_new", "void*", ["void*"]);
  const free = cpu.func("ggml_threadpool_free", "void", ["void*"]);
  return {
    create(threads) {
      const params = new Uint8Array(paramsBytes);
      initParams(params, threads);
      return create(params) as Pointer;
    },
    free: (pool) => void free(pool),
  };
}
