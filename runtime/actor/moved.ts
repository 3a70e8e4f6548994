// Moved reply: the reply to an ask, with buffers that are transferred to the asking thread instead of copied. The actor loses
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
