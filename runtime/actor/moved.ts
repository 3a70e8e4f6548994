// Answer whose buffers move to the thread of the asker instead of being copied. Whoever returns one has them no more.
import type { Transferable } from "../thread/endpoint.ts";

export class Moved<T> {
  readonly value: T;
  /** Each once, and none that holds anything else. */
  readonly buffers: readonly Transferable[];

  constructor(value: T, buffers: readonly Transferable[]) {
    this.value = value;
    this.buffers = buffers;
  }
}
