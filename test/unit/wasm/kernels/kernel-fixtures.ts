// Kernel fixtures for tests: a loader of kernel variants (such as "plain" and "relaxed"), and memory for the kernels'
// arguments.
import assert from "node:assert/strict";
import { Random } from "../../../../engines/decoding/sampler/random.ts";
import type { KernelExports } from "../../../../engines/wasm/load/kernel-exports.ts";
import {
  createMemory,
  instantiateKernels,
  type KernelMemory,
  type KernelModule,
  loadKernels,
} from "../../../../engines/wasm/load/kernel-module.ts";

const variable = "TROUPE_WASM_KERNELS";
const firstByte = 65_536;
const rigPages = 64;
const rubbish = 0xff;

export const variants = ["relaxed", "plain"] as const;

/** Loads the kernels with `wish` as the environment variable that selects the kernel variant. */
export async function loadWith(wish: string): Promise<KernelModule> {
  const before = process.env[variable];
  process.env[variable] = wish;
  try {
    return await loadKernels();
  } finally {
    if (before === undefined) delete process.env[variable];
    else process.env[variable] = before;
  }
}

export async function createRig(wish: string): Promise<Rig> {
  const memory = createMemory(rigPages);
  return new Rig(instantiateKernels(await loadWith(wish), memory), memory);
}

/** Kernels and their memory. Reserved memory reads as NaN in every float type until it is written. */
export class Rig {
  readonly kernels: KernelExports;
  readonly #memory: KernelMemory;
  #next = firstByte;

  constructor(kernels: KernelExports, memory: KernelMemory) {
    this.kernels = kernels;
    this.#memory = memory;
    this.bytes(0, memory.buffer.byteLength).fill(rubbish, firstByte);
  }

  /** Frees all reserved memory. */
  reset(): void {
    this.bytes(firstByte, this.#next - firstByte).fill(rubbish);
    this.#next = firstByte;
  }

  /** Reserves `bytes` bytes, followed by 16 guard bytes that must stay unchanged. */
  reserve(bytes: number): number {
    const at = this.#next;
    this.#next += Math.ceil(bytes / 16) * 16 + 16;
    assert.ok(this.#next <= this.#memory.buffer.byteLength, "the test's memory is too small");
    return at;
  }

  place(data: Float32Array | Uint16Array): number {
    const at = this.reserve(data.byteLength);
    this.bytes(at, data.byteLength).set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    return at;
  }

  bytes(at: number, count: number): Uint8Array {
    return new Uint8Array(this.#memory.buffer, at, count);
  }

  floats(at: number, count: number): Float32Array {
    return new Float32Array(this.#memory.buffer, at, count);
  }

  assertUntouched(at: number, count: number): void {
    assert.ok(
      this.bytes(at, count).every((byte) => byte === rubbish),
      "bytes outside reserved memory were written",
    );
  }
}

/** Returns uniform random numbers between -magnitude and magnitude. */
export function randomFloats(count: number, seed: number, magnitude = 1): Float32Array {
  const random = new Random(BigInt(seed));
  return Float32Array.from({ length: count }, () => (random.next() * 2 - 1) * magnitude);
}
