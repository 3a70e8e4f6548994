// Moved: an answer whose buffers move to the asker's thread instead of being copied. The actor that returns it loses them.
import type { Transferable } from "../endpoint/endpoint.ts";

export class Moved<T> {
  readonly value: T;
  /** Each one once. A buffer must hold nothing but parts of `value`. */
  readonly buffers: readonly Transferable[];

  constructor(value: T, buffers: readonly Transferable[]) {
    this.value = value;
    this.buffers = buffers;
  }
}
