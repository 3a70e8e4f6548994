// Thread of the kernel benchmark: measures the kernels of its task, while the other threads measure the same kernel, and
// returns all rates.
import { performance } from "node:perf_hooks";
import type { KernelModule } from "../../engines/wasm/load/kernel-module.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import { Matrices, type MatrixShape } from "./matrices.ts";

export interface KernelBenchInit {
  readonly kernels: KernelModule;
  readonly types: readonly number[];
  /** Numbers of activation rows to measure. */
  readonly counts: readonly number[];
  readonly shape: MatrixShape;
  readonly workingBytes: number;
  readonly rounds: number;
  readonly millisecondsEach: number;
  readonly threads: number;
  /**
   * Barrier of two words, initially zero: the number of threads that have arrived, and the number of times all have arrived.
   */
  readonly meeting: SharedArrayBuffer;
}

/** Results of one thread in one round. Rates are in bytes and products per second. */
export interface Round {
  readonly readBytes: number;
  readonly dotProducts: number;
  /** For each row count in `counts`: matrix bytes and products per second. */
  readonly kernels: readonly { readonly bytes: number; readonly products: number }[];
}

/** Rounds of each type, in the order of init.types. */
export type KernelBenchReady = readonly (readonly Round[])[];

export const kernelBenchModule = new URL(import.meta.url);

const dotsPerCall = 1_000_000;
const productsPerDot = 16;

export async function start({ init }: PlaceContext<KernelBenchInit>): Promise<KernelBenchReady> {
  return init.types.map((type) => {
    const matrices = new Matrices(init.kernels, type, init.shape, init.workingBytes, Math.max(...init.counts));
    const measured = Array.from({ length: init.rounds + 1 }, () => measureRound(init, matrices));
    // The first round is dropped: the compiler still optimizes the code in it.
    return measured.slice(1);
  });
}

function measureRound(init: KernelBenchInit, matrices: Matrices): Round {
  const { rows, k } = init.shape;
  const readsPerSecond = callsPerSecond(init, () => matrices.readAll());
  const dotsPerSecond = callsPerSecond(init, () => matrices.kernels.probeDot(dotsPerCall));
  const kernels = init.counts.map((n) => {
    matrices.prepare(n);
    const calls = callsPerSecond(init, () => matrices.multiply(n));
    return { bytes: calls * matrices.bytes, products: calls * n * rows * k };
  });
  return {
    readBytes: readsPerSecond * matrices.count * matrices.bytes,
    dotProducts: dotsPerSecond * dotsPerCall * productsPerDot,
    kernels,
  };
}

/** Measures calls per second. Starts together with all threads but does not wait for the slowest at the end. */
function callsPerSecond({ meeting, threads, millisecondsEach }: KernelBenchInit, call: () => void): number {
  meet(new Int32Array(meeting), threads);
  const startMs = performance.now();
  let calls = 0;
  let spentMs = 0;
  while (spentMs < millisecondsEach) {
    call();
    calls++;
    spentMs = performance.now() - startMs;
  }
  return (calls / spentMs) * 1000;
}

/** Waits until all threads have called this. */
export function meet(words: Int32Array, threads: number): void {
  const held = Atomics.load(words, 1);
  if (Atomics.add(words, 0, 1) === threads - 1) {
    Atomics.store(words, 0, 0);
    Atomics.add(words, 1, 1);
  } else while (Atomics.load(words, 1) === held);
}
