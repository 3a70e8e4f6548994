// NativeFloats: a Float32Array view of native memory, for reading the outputs of passes. The view is recreated only if
// the memory has moved or a longer view is needed.
import koffi from "koffi";
import type { Pointer } from "../pointer.ts";

export class NativeFloats {
  #floats = new Float32Array(0);
  #address = 0n;

  /** Returns the first `length` floats at `pointer`; valid until the next pass. */
  at(pointer: Pointer, length: number): Float32Array {
    const address = koffi.address(pointer);
    if (address !== this.#address || length > this.#floats.length) {
      this.#floats = new Float32Array(koffi.view(pointer, length * Float32Array.BYTES_PER_ELEMENT));
      this.#address = address;
    }
    return this.#floats;
  }
}
