// Moved reply: its buffers are transferred to the asker's thread instead of copied. The actor loses them.
import type { Transferable } from "../endpoint/endpoint.ts";

export class Moved<T> {
  readonly value: T;
  /** Without duplicates. A buffer must contain only parts of `value`. */
  readonly buffers: readonly Transferable[];

  constructor(value: T, buffers: readonly Transferable[]) {
    this.value = value;
    this.buffers = buffers;
  }
}
