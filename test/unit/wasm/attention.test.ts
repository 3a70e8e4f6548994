import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { KernelExports } from "../../../engines/wasm/kernel-exports.ts";
import { createMemory, instantiateKernels, loadKernels, type Twin } from "../../../engines/wasm/kernel-module.ts";

interface Shape {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headLength: number;
  readonly blockTokens: number;
}

/** Tokens before..before + n of a sequence: queries of the last n, keys and values of all. */
interface Case {
  readonly shape: Shape;
  readonly n: number;
  readonly before: number;
  readonly queries: Float32Array;
  readonly keys: Float32Array;
  readonly values: Float32Array;
}

const smollm: Shape = { heads: 9, kvHeads: 3, headLength: 64, blockTokens: 32 };
const types = { F32: 0, F16: 1, BF16: 30, Q8_0: 8 } as const;
type Type = keyof typeof types;
/** Largest error for values of about 1: what the type's rounding of keys and values comes to. */
const tolerance: Readonly<Record<Type, number>> = { F32: 1e-5, F16: 2e-3, BF16: 1.5e-2, Q8_0: 2e-2 };
const typeNames = Object.keys(types) as Type[];

const memoryPages = 96;
const firstByte = 65_536;
const floatBytes = 4;
const tail = 4;
const nothing = -1e30;

/** One thread's memory and kernels. All of it is NaN, as floats of any size, before something is written. */
class Rig {
  readonly kernels: KernelExports;
  readonly #memory: ReturnType<typeof createMemory>;
  #next = firstByte;

  constructor(kernels: KernelExports, memory: ReturnType<typeof createMemory>) {
    this.kernels = kernels;
    this.#memory = memory;
  }

  /** Forgets everything and fills the memory with NaN. */
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

  /** The rows that `parts` threads make of a case, block b being part b % parts's. */
  attend(type: Type, { shape, n, before, queries, keys, values }: Case, parts: number, scale: number): Float32Array {
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
        kvType, listAt, list.length / 2, blockTokens, queriesAt, stride, n, before, heads, kvHeads, headLength, scale, out,
      );
    }
    const out = this.reserve(n * heads * headLength * floatBytes);
    this.kernels.mergeAttention(partials, partBytes, parts, n, heads, headLength, out, heads * headLength);
    return this.floats(out, n * heads * headLength).slice();
  }
}

/** The same numbers each time, between -1 and 1. */
function createNoise(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0;
    return state / 2 ** 31;
  };
}

function createCase(shape: Shape, n: number, before: number, sizeOfQueries = 3): Case {
  const noise = createNoise(n * 1000 + before);
  const kvFloats = (before + n) * shape.kvHeads * shape.headLength;
  return {
    shape,
    n,
    before,
    queries: Float32Array.from({ length: n * shape.heads * shape.headLength }, () => noise() * sizeOfQueries),
    keys: Float32Array.from({ length: kvFloats }, noise),
    values: Float32Array.from({ length: kvFloats }, noise),
  };
}

/** Softmax attention as a textbook has it, in double precision. */
function attendPlainly({ shape, n, before, queries, keys, values }: Case, scale: number): Float64Array {
  const { heads, kvHeads, headLength } = shape;
  const out = new Float64Array(n * heads * headLength);
  const width = kvHeads * headLength;
  for (let row = 0; row < n; row++) {
    for (let head = 0; head < heads; head++) {
      const query = (row * heads + head) * headLength;
      const kv = Math.floor((head * kvHeads) / heads) * headLength;
      const scores: number[] = [];
      for (let token = 0; token <= before + row; token++) {
        let score = 0;
        for (let i = 0; i < headLength; i++) score += queries[query + i]! * keys[token * width + kv + i]!;
        scores.push(score * scale);
      }
      const peak = Math.max(...scores);
      const weights = scores.map((score) => Math.exp(score - peak));
      const sum = weights.reduce((total, weight) => total + weight, 0);
      for (const [token, weight] of weights.entries()) {
        for (let i = 0; i < headLength; i++) out[query + i]! += (weight / sum) * values[token * width + kv + i]!;
      }
    }
  }
  return out;
}

function largestError(got: Float32Array, expected: Float64Array): number {
  assert.equal(got.length, expected.length);
  let largest = 0;
  for (const [i, value] of got.entries()) {
    assert.ok(!Number.isNaN(value), `value ${i} is NaN`);
    largest = Math.max(largest, Math.abs(value - expected[i]!));
  }
  return largest;
}

const lengths: Case[] = [1, 2, 3, 5, 8, 33].flatMap((n) => {
  return [0, 30, 31, 32, 99].map((before) => createCase(smollm, n, before));
});
const shapes: Case[] = [
  { heads: 4, kvHeads: 4, headLength: 80, blockTokens: 32 },
  { heads: 14, kvHeads: 2, headLength: 64, blockTokens: 16 },
  { heads: 8, kvHeads: 2, headLength: 96, blockTokens: 64 },
  { heads: 4, kvHeads: 2, headLength: 128, blockTokens: 256 },
  { heads: 5, kvHeads: 1, headLength: 256, blockTokens: 32 },
  { heads: 6, kvHeads: 2, headLength: 4, blockTokens: 4 },
  { heads: 3, kvHeads: 1, headLength: 100, blockTokens: 44 },
  { heads: 2, kvHeads: 2, headLength: 512, blockTokens: 20 },
].flatMap((shape) => [createCase(shape, 1, 70), createCase(shape, 6, 50)]);

function expectedOf(cases: readonly Case[]): readonly (readonly [Case, Float64Array])[] {
  return cases.map((one) => [one, attendPlainly(one, 1 / Math.sqrt(one.shape.headLength))]);
}

const expectedOfLengths = expectedOf(lengths);
const expectedOfShapes = expectedOf(shapes);

async function createRig(twin: Twin): Promise<Rig> {
  process.env.TROUPE_WASM_KERNELS = twin;
  const module = await loadKernels();
  delete process.env.TROUPE_WASM_KERNELS;
  const memory = createMemory(memoryPages);
  const rig = new Rig(instantiateKernels(module, memory), memory);
  rig.reserve(memory.buffer.byteLength - firstByte);
  rig.reset();
  return rig;
}

for (const twin of ["relaxed", "plain"] as const) {
  const rig = await createRig(twin);

  describe(`the ${twin} attention kernels`, () => {
    for (const type of typeNames) {
      it(`agree with a plain softmax for any number of rows and tokens, with ${type} pages in 1 to 3 parts`, () => {
        for (const [at, [one, expected]] of expectedOfLengths.entries()) {
          rig.reset();
          const got = rig.attend(type, one, (at % 3) + 1, 1 / Math.sqrt(one.shape.headLength));
          const error = largestError(got, expected);
          assert.ok(error <= tolerance[type], `${one.n} rows behind ${one.before} tokens: off by ${error}`);
        }
      });

      it(`agree with it for any shape of heads and blocks, with ${type} pages`, () => {
        for (const [one, expected] of expectedOfShapes) {
          rig.reset();
          const error = largestError(rig.attend(type, one, 2, 1 / Math.sqrt(one.shape.headLength)), expected);
          assert.ok(error <= tolerance[type], `${JSON.stringify(one.shape)}, ${one.n} rows: off by ${error}`);
        }
      });

      it(`stand scores so large and far apart that one token takes all, with ${type} pages`, () => {
        rig.reset();
        const one = createCase(smollm, 3, 60, 1e6);
        const error = largestError(rig.attend(type, one, 2, 1), attendPlainly(one, 1));
        // The rounding of keys may let another token win; what is asked is that nothing overflows.
        assert.ok(type === "F32" ? error <= 1e-5 : error <= 2, `off by ${error}`);
      });
    }

    it("say that a row has seen nothing where a part has no page, or only pages of later tokens", () => {
      rig.reset();
      const { heads, kvHeads, headLength, blockTokens } = smollm;
      const query = rig.place(new Float32Array(2 * heads * headLength).fill(1));
      const page = rig.reserve(rig.kernels.kvPageBytes(types.BF16, kvHeads, headLength, blockTokens));
      const token = rig.place(new Float32Array(kvHeads * headLength).fill(1));
      rig.kernels.kvWrite(types.BF16, page, 0, blockTokens, token, token, kvHeads, headLength);
      const list = rig.place(Int32Array.of(page, 32));
      const record = headLength + tail;
      for (const [pages, rowsThatSee] of [
        [0, 0],
        [1, 1],
      ] as const) {
        const out = rig.reserve(2 * heads * record * floatBytes);
        // biome-ignore format: one call
        rig.kernels.attend(
          types.BF16, list, pages, blockTokens, query, heads * headLength, 2, 31, heads, kvHeads, headLength, 1, out,
        );
        for (let i = 0; i < 2 * heads; i++) {
          const sees = i >= (2 - rowsThatSee) * heads;
          const got = rig.floats(out + i * record * floatBytes, headLength + 2);
          const expected = new Float32Array(headLength + 2).fill(sees ? 1 : 0);
          expected[headLength] = sees ? headLength : nothing;
          assert.deepEqual(got, expected, `${pages} pages, head ${i}`);
        }
      }
    });

    it("round to the nearest number of 16 bits, in the middle to the even one", () => {
      /** What comes back of one value: the only token has all the weight. */
      const stored = (type: Type, value: number) => {
        rig.reset();
        const shape = { heads: 1, kvHeads: 1, headLength: 4, blockTokens: 4 };
        const values = new Float32Array(4).fill(value);
        const ones = new Float32Array(4).fill(1);
        return rig.attend(type, { shape, n: 1, before: 0, queries: ones, keys: ones, values }, 1, 1)[3];
      };
      const [b, h, tiny] = [2 ** -7, 2 ** -10, 2 ** -24];
      for (const sign of [1, -1]) {
        assert.equal(stored("BF16", sign * (1 + b * 0.5)), sign);
        assert.equal(stored("BF16", sign * (1 + b * 1.5)), sign * (1 + b * 2));
        assert.equal(stored("BF16", sign * (1 + b * 0.51)), sign * (1 + b));
        assert.equal(stored("F16", sign * (1 + h * 0.5)), sign);
        assert.equal(stored("F16", sign * (1 + h * 1.5)), sign * (1 + h * 2));
        assert.equal(stored("F16", sign * (1 + h * 0.51)), sign * (1 + h));
        assert.equal(stored("F16", sign * tiny * 2.5), sign * tiny * 2);
        assert.equal(stored("F16", sign * tiny * 1023.6), sign * tiny * 1024);
        assert.equal(stored("F16", sign * 1e30), sign * 65_504);
      }
      assert.equal(stored("F16", 0), 0);
    });
  });
}
