// Tensor split: each GPU's share of a model's layers, as an array in native memory that exists only during a load.
import koffi from "koffi";
import type { Pointer } from "./pointer.ts";

/**
 * Length of the array. It exceeds the number of GPUs that llama.cpp supports, because llama.cpp reads one share for each GPU that it finds.
 */
const maxDevices = 128;

/**
 * Calls `load` with the address of the array of shares, or with null, so that llama.cpp divides the layers in proportion to free memory.
 */
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
