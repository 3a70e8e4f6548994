// Attention fixtures for kernel tests: memory and kernels of a variant, test cases, and a reference softmax attention.
import assert from "node:assert/strict";
import type { KernelExports } from "../../../../engines/wasm/load/kernel-exports.ts";
import {
  createMemory,
  instantiateKernels,
  type KernelMemory,
  type Variant,
} from "../../../../engines/wasm/load/kernel-module.ts";
import { loadWith } from "./kernel-fixtures.ts";

interface Shape {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headLength: number;
  readonly blockTokens: number;
}

/** Sequence of `before` + n tokens: the queries of its last n tokens, and the keys and values of all tokens. */
export interface Case {
  readonly shape: Shape;
  readonly n: number;
  readonly before: number;
  readonly queries: Float32Array;
  readonly keys: Float32Array;
  readonly values: Float32Array;
  readonly view: View;
}

/** Positions that a token sees, and changes to its attention scores. */
interface View {
  readonly behind: number;
  readonly ahead: number;
  readonly scale: number;
  /** Soft cap of the attention scores; 0 = none. */
  readonly softcap: number;
  /** Slope of the position bias (ALiBi) of the first head; head h has h + 1 times this slope. 0 = no bias. */
  readonly slope: number;
}

/** Value of `behind` or `ahead` that includes every position. */
export const all = 0x7fffffff;

export const smollm: Shape = { heads: 9, kvHeads: 3, headLength: 64, blockTokens: 32 };
export const types = { F32: 0, F16: 1, BF16: 30, Q8_0: 8 } as const;
export type Type = keyof typeof types;
/** Maximum error for values of about 1, by KV type. The error comes from rounding keys and values to the type. */
export const tolerance: Readonly<Record<Type, number>> = { F32: 1e-5, F16: 2e-3, BF16: 1.5e-2, Q8_0: 2e-2 };
export const typeNames = Object.keys(types) as Type[];

const memoryPages = 96;
const firstByte = 65_536;
export const floatBytes = 4;
export const tail = 4;
export const nothing = -1e30;

/** Memory and kernels of one thread. Unwritten memory reads as NaN in every float type. */
export class AttentionRig {
  readonly kernels: KernelExports;
  readonly #memory: KernelMemory;
  #next = firstByte;

  constructor(kernels: KernelExports, memory: KernelMemory) {
    this.kernels = kernels;
    this.#memory = memory;
  }

  /** Resets the memory to NaN. */
  reset(): void {
    new Uint8Array(this.#memory.buffer).fill(0xff, firstByte, this.#next);
    this.#next = firstByte;
  }

  reserve(bytes: number): number {
    const at = this.#next;
    this.#next += Math.ceil(bytes / 16) * 16;
    assert.ok(this.#next <= this.#memory.buffer.byteLength, "the test's memory is too small");
    return at;
  }

  place(data: Float32Array | Int32Array): number {
    const at = this.reserve(data.byteLength);
    new Uint8Array(this.#memory.buffer).set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), at);
    return at;
  }

  floats(at: number, count: number): Float32Array {
    return new Float32Array(this.#memory.buffer, at, count);
  }

  /** Computes the output rows of a case with `parts` threads. Block b belongs to thread b % parts. */
  attend(type: Type, { shape, n, before, queries, keys, values, view }: Case, parts: number): Float32Array {
    const { heads, kvHeads, headLength, blockTokens } = shape;
    const kvType = types[type];
    const width = kvHeads * headLength;
    const pageBytes = this.kernels.kvPageBytes(kvType, kvHeads, headLength, blockTokens);
    assert.equal(pageBytes % 16, 0);
    const lists: number[][] = Array.from({ length: parts }, () => []);
    const [keysAt, valuesAt] = [this.place(keys), this.place(values)];
    let page = 0;
    for (let token = 0; token < before + n; token++) {
      const index = token % blockTokens;
      if (index === 0) {
        page = this.reserve(pageBytes);
        lists[(token / blockTokens) % parts]!.push(page, token);
      }
      const offset = token * width * floatBytes;
      this.kernels.kvWrite(kvType, page, index, blockTokens, keysAt + offset, valuesAt + offset, kvHeads, headLength);
    }
    const queriesAt = this.place(queries);
    const partBytes = n * heads * (headLength + tail) * floatBytes;
    const partials = this.reserve(parts * partBytes);
    for (const [part, list] of lists.entries()) {
      const listAt = this.place(Int32Array.from(list));
      const out = partials + part * partBytes;
      const stride = heads * headLength;
      // biome-ignore format: one call
      this.kernels.attend(
        kvType, listAt, list.length / 2, blockTokens, queriesAt, stride, n, before, heads, kvHeads, headLength, view.scale,
        view.softcap, view.behind, view.ahead, out, view.slope === 0 ? 0 : this.place(slopesOf(view, heads)),
      );
    }
    const out = this.reserve(n * heads * headLength * floatBytes);
    this.kernels.mergeAttention(partials, partBytes, parts, n, heads, headLength, out, heads * headLength);
    return this.floats(out, n * heads * headLength).slice();
  }
}

/** Returns a reproducible sequence of numbers between -1 and 1. */
function createNoise(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0;
    return state / 2 ** 31;
  };
}

export function createCase(shape: Shape, n: number, before: number, view: Partial<View> = {}, sizeOfQueries = 3): Case {
  const noise = createNoise(n * 1000 + before);
  const kvFloats = (before + n) * shape.kvHeads * shape.headLength;
  return {
    shape,
    n,
    before,
    queries: Float32Array.from({ length: n * shape.heads * shape.headLength }, () => noise() * sizeOfQueries),
    keys: Float32Array.from({ length: kvFloats }, noise),
    values: Float32Array.from({ length: kvFloats }, noise),
    view: { behind: all, ahead: 0, scale: 1 / Math.sqrt(shape.headLength), softcap: 0, slope: 0, ...view },
  };
}

/** Returns softmax attention by its definition, in double precision. */
export function attendPlainly({ shape, n, before, queries, keys, values, view }: Case): Float64Array {
  const { heads, kvHeads, headLength } = shape;
  const out = new Float64Array(n * heads * headLength);
  const width = kvHeads * headLength;
  for (let row = 0; row < n; row++) {
    for (let head = 0; head < heads; head++) {
      const query = (row * heads + head) * headLength;
      const kv = Math.floor((head * kvHeads) / heads) * headLength;
      const scores: number[] = [];
      const first = Math.max(0, before + row - view.behind);
      const last = Math.min(before + n - 1, before + row + view.ahead);
      for (let token = first; token <= last; token++) {
        let score = 0;
        for (let i = 0; i < headLength; i++) score += queries[query + i]! * keys[token * width + kv + i]!;
        score *= view.scale;
        const capped = view.softcap > 0 ? view.softcap * Math.tanh(score / view.softcap) : score;
        scores.push(capped - view.slope * (head + 1) * Math.abs(token - before - row));
      }
      const peak = Math.max(...scores);
      const weights = scores.map((score) => Math.exp(score - peak));
      const sum = weights.reduce((total, weight) => total + weight, 0);
      for (const [i, weight] of weights.entries()) {
        const at = (first + i) * width + kv;
        for (let d = 0; d < headLength; d++) out[query + d]! += (weight / sum) * values[at + d]!;
      }
    }
  }
  return out;
}

export function largestError(got: Float32Array, expected: Float64Array): number {
  assert.equal(got.length, expected.length);
  let largest = 0;
  for (const [i, value] of got.entries()) {
    assert.ok(!Number.isNaN(value), `value ${i} is NaN`);
    largest = Math.max(largest, Math.abs(value - expected[i]!));
  }
  return largest;
}

export async function createAttentionRig(variant: Variant): Promise<AttentionRig> {
  const memory = createMemory(memoryPages);
  const rig = new AttentionRig(instantiateKernels(await loadWith(variant), memory), memory);
  rig.reserve(memory.buffer.byteLength - firstByte);
  rig.reset();
  return rig;
}

function slopesOf({ slope }: Case["view"], heads: number): Float32Array {
  return Float32Array.from({ length: heads }, (_, head) => slope * (head + 1));
}
