// Moved reply: a reply whose buffers are transferred to the thread of the sender of the ask, instead of copied. The actor loses
// access to them.
import type { Transferable } from "../endpoint/endpoint.ts";

export class Moved<T> {
  readonly value: T;
  /** Buffers to transfer, each listed once. They must contain no data except parts of `value`. */
  readonly buffers: readonly Transferable[];

  constructor(value: T, buffers: readonly Transferable[]) {
    this.value = value;
    this.buffers = buffers;
  }
}
