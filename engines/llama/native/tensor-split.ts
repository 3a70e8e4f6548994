// Tensor split: the shares of several GPUs in the layers of a model, as an array in native memory that exists during a load.
import koffi from "koffi";
import type { Pointer } from "./pointer.ts";

/** More GPUs than llama.cpp uses; it reads one share for each GPU that it finds. */
const maxDevices = 128;

/** Runs `load` with the address of the shares; null: llama.cpp divides the layers by free memory. */
export function withTensorSplit<T>(shares: readonly number[] | null, load: (split: Pointer) => T): T {
  if (shares === null) return load(null);
  const split: Pointer = koffi.alloc("float", maxDevices);
  try {
    koffi.encode(
      split,
      koffi.array("float", maxDevices),
      Array.from({ length: maxDevices }, (_, i) => shares[i] ?? 0),
    );
    return load(split);
  } finally {
    koffi.free(split);
  }
}
