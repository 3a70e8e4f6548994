import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Random } from "../../../../engines/decoding/sampler/random.ts";
import { createRig, type Rig, randomFloats, variants } from "./kernel-fixtures.ts";

/** Values of a matrix, as stored in a file and as floats. */
interface Matrix {
  readonly type: Type;
  readonly rows: number;
  readonly k: number;
  readonly stored: Float32Array | Uint16Array;
  readonly values: Float64Array;
}

const types = { F32: 0, F16: 1, BF16: 30 } as const;
type Type = keyof typeof types;
const typeNames = Object.keys(types) as Type[];
const floatBytes = 4;
/** Error bound of a sum of k products. The sum is rounded k times, and the errors have random signs. */
const roundings = (k: number) => 4 * Math.sqrt(k) * 2 ** -24;

function storedValue(type: Type, stored: number): number {
  if (type === "F32") return stored;
  const sign = stored & 0x8000 ? -1 : 1;
  const [exponentBits, bias] = type === "F16" ? [5, 15] : [8, 127];
  const fractionBits = 15 - exponentBits;
  const exponent = (stored & 0x7fff) >> fractionBits;
  const fraction = (stored & ((1 << fractionBits) - 1)) / 2 ** fractionBits;
  return sign * (exponent === 0 ? fraction * 2 ** (1 - bias) : (1 + fraction) * 2 ** (exponent - bias));
}

function createMatrix(type: Type, rows: number, k: number, stored: Float32Array | Uint16Array): Matrix {
  return { type, rows, k, stored, values: Float64Array.from(stored, (value) => storedValue(type, value)) };
}

/** Returns random weights similar to those of real models: up to 1, some of them very small. */
function randomMatrix(type: Type, rows: number, k: number, seed: number): Matrix {
  if (type === "F32") return createMatrix(type, rows, k, randomFloats(rows * k, seed));
  const random = new Random(BigInt(seed));
  const one = type === "F16" ? 0x3c00 : 0x3f80;
  const bits = () => Math.floor(random.next() * one) | (random.next() < 0.5 ? 0x8000 : 0);
  return createMatrix(type, rows, k, Uint16Array.from({ length: rows * k }, bits));
}

/** Packs a matrix in one call. Returns its address. */
function pack(rig: Rig, { type, rows, k, stored }: Matrix): number {
  const padded = Math.ceil(rows / 16) * 16;
  const bytes = rig.kernels.matrixBytes(types[type], padded, k);
  assert.equal(bytes % 16, 0);
  const at = rig.reserve(bytes);
  assert.equal(rig.kernels.packRows(types[type], rig.place(stored), at, 0, rows, padded, k), 0);
  rig.assertUntouched(at + bytes, 16);
  return at;
}

/** Multiplies the matrix by n rows of x. Each output row is followed by 16 unused floats, which the kernel must not change. */
function multiply(rig: Rig, type: Type, at: number, rows: number, k: number, x: Float32Array): Float32Array[] {
  const n = x.length / k;
  const bytes = rig.kernels.activationBytes(types[type], n, k);
  assert.equal(bytes % 16, 0);
  const prepared = rig.reserve(bytes);
  rig.kernels.prepare(types[type], rig.place(x), k, n, k, prepared);
  rig.assertUntouched(prepared + bytes, 16);
  const stride = rows + 16;
  const y = rig.reserve(n * stride * floatBytes);
  rig.kernels.multiply(types[type], at, rows, k, prepared, n, y, stride);
  return Array.from({ length: n }, (_, i) => {
    rig.assertUntouched(y + (i * stride + rows) * floatBytes, 16 * floatBytes);
    return rig.floats(y + i * stride * floatBytes, rows);
  });
}

function assertProducts({ k, values }: Matrix, x: Float32Array, products: readonly Float32Array[]): void {
  for (const [i, y] of products.entries()) {
    for (const [row, got] of y.entries()) {
      let sum = 0;
      let magnitude = 0;
      for (let c = 0; c < k; c++) {
        const product = values[row * k + c]! * x[i * k + c]!;
        sum += product;
        magnitude += Math.abs(product);
      }
      const error = Math.abs(got - sum);
      assert.ok(error <= roundings(k) * magnitude, `row ${row} of product ${i}: ${got} where ${sum} is right`);
    }
  }
}

for (const variant of variants) {
  const rig = await createRig(variant);

  for (const type of typeNames) {
    describe(`${type} matrices on the ${variant} kernels`, () => {
      it("give the products that arithmetic gives, for any number of activation rows", () => {
        for (const [rows, k] of [
          [16, 32],
          [48, 64],
          [64, 576],
        ] as const) {
          const matrix = randomMatrix(type, rows, k, rows + k);
          for (const n of [1, 2, 3, 4, 5, 8, 9, 32, 33]) {
            rig.reset();
            const x = randomFloats(n * k, n);
            assertProducts(matrix, x, multiply(rig, type, pack(rig, matrix), rows, k, x));
          }
        }
      });

      it("give a row the same product alone and in a batch, bit for bit", () => {
        for (const k of [576, 1024, 2592]) {
          rig.reset();
          const [rows, n] = [32, 131];
          const matrix = randomMatrix(type, rows, k, 1);
          const at = pack(rig, matrix);
          const x = randomFloats(n * k, 2);
          const together = multiply(rig, type, at, rows, k, x);
          assertProducts(matrix, x, together);
          for (const i of [0, 1, 63, 64, 65, 110, 111, 112, 127, 128, 129, 130]) {
            const alone = multiply(rig, type, at, rows, k, x.subarray(i * k, (i + 1) * k));
            assert.deepEqual(together[i], alone[0], `row ${i}`);
          }
        }
      });

      it("read activation rows that are not adjacent", () => {
        rig.reset();
        const [rows, k, stride] = [16, 32, 100];
        const matrix = randomMatrix(type, rows, k, 3);
        const at = pack(rig, matrix);
        for (const n of [1, 3, 6]) {
          const x = randomFloats(n * k, n);
          const spread = new Float32Array(n * stride).fill(Number.NaN);
          for (let i = 0; i < n; i++) spread.set(x.subarray(i * k, (i + 1) * k), i * stride);
          const prepared = rig.reserve(rig.kernels.activationBytes(types[type], n, k));
          rig.kernels.prepare(types[type], rig.place(spread), stride, n, k, prepared);
          const y = rig.reserve(n * rows * floatBytes);
          rig.kernels.multiply(types[type], at, rows, k, prepared, n, y, rows);
          assertProducts(
            matrix,
            x,
            Array.from({ length: n }, (_, i) => rig.floats(y + i * rows * floatBytes, rows)),
          );
        }
      });

      it("return their rows unchanged, packed at once or in parts", () => {
        rig.reset();
        const [rows, k] = [48, 96];
        const matrix = randomMatrix(type, rows, k, 4);
        const valueBytes = matrix.stored.BYTES_PER_ELEMENT;
        const at = rig.reserve(rig.kernels.matrixBytes(types[type], rows, k));
        const source = rig.place(matrix.stored);
        for (const [first, count] of [
          [16, 32],
          [0, 16],
        ] as const) {
          const from = source + first * k * valueBytes;
          assert.equal(rig.kernels.packRows(types[type], from, at, first, count, rows, k), 0);
        }
        const out = rig.reserve(k * floatBytes);
        for (let row = 0; row < rows; row++) {
          rig.kernels.readRow(types[type], at, row, rows, k, out);
          assert.deepEqual([...rig.floats(out, k)], [...matrix.values.subarray(row * k, (row + 1) * k)], `row ${row}`);
        }
        rig.assertUntouched(out + k * floatBytes, 16);
      });

      it("are zero in missing rows at the end", () => {
        for (const count of [1, 2, 3, 4, 7, 15, 18]) {
          rig.reset();
          const [rows, k] = [count > 16 ? 32 : 16, 64];
          const matrix = randomMatrix(type, count, k, count);
          const at = pack(rig, matrix);
          const x = randomFloats(k, 5);
          const [y] = multiply(rig, type, at, rows, k, x);
          assertProducts(matrix, x, [y!.subarray(0, count)]);
          assert.ok(y!.subarray(count).every((value) => value === 0));
        }
      });

      it("name the first row that is not finite", () => {
        const [rows, k] = [18, 64];
        const { stored } = randomMatrix(type, rows, k, 6);
        const infinity = { F32: Number.POSITIVE_INFINITY, F16: 0x7c00, BF16: 0x7f80 }[type];
        const nan = { F32: Number.NaN, F16: 0xfe01, BF16: 0xff81 }[type];
        for (const [bad, row, column] of [
          [infinity, 0, 0],
          [nan, 1, 63],
          [nan, 6, 31],
          [infinity, 15, 1],
          [nan, 16, 8],
          [infinity, 17, 63],
        ] as const) {
          rig.reset();
          const broken = stored.slice();
          broken[row * k + column] = bad;
          broken[17 * k + 5] = nan;
          const at = rig.reserve(rig.kernels.matrixBytes(types[type], 32, k));
          assert.equal(rig.kernels.packRows(types[type], rig.place(broken), at, 0, rows, 32, k), row + 1);
        }
      });

      it("handle the largest and smallest weights with large and small activations", () => {
        const k = 32;
        const largest = { F32: 3e38, F16: 0x7bff, BF16: 0x7f00 }[type];
        const smallest = { F32: 1e-30, F16: 0x0001, BF16: 0x0080 }[type];
        const cases = [
          [smallest, 1e8],
          [smallest, 1],
          [largest, 1e-8],
          [largest, type === "F16" ? 1e8 : 1e-3],
        ] as const;
        for (const [weight, activation] of cases) {
          rig.reset();
          const stored = type === "F32" ? new Float32Array(16 * k) : new Uint16Array(16 * k);
          stored[7 * k + 9] = weight;
          const matrix = createMatrix(type, 16, k, stored);
          const x = new Float32Array(k).fill(activation);
          assertProducts(matrix, x, multiply(rig, type, pack(rig, matrix), 16, k, x));
        }
      });
    });
  }

  describe(`F16 matrices on the ${variant} kernels, in every encoding`, () => {
    /** Bits of all finite values with a magnitude below `end`, with both signs. Their number is a multiple of 32. */
    const below = (end: number) => Uint16Array.from({ length: 2 * end }, (_, i) => (i >> 1) | ((i & 1) << 15));

    it("return every value unchanged, in groups with only values below 128 and in others", () => {
      for (const end of [0x5800, 0x7c00]) {
        rig.reset();
        const stored = below(end);
        const k = stored.length / 16;
        const matrix = createMatrix("F16", 16, k, stored);
        const at = pack(rig, matrix);
        const out = rig.reserve(k * floatBytes);
        for (let row = 0; row < 16; row++) {
          rig.kernels.readRow(types.F16, at, row, 16, k, out);
          assert.deepEqual([...rig.floats(out, k)], [...matrix.values.subarray(row * k, (row + 1) * k)], `row ${row}`);
        }
      }
    });

    it("multiply groups with a value of 128, and groups without one", () => {
      const [rows, k] = [64, 96];
      const { stored } = randomMatrix("F16", rows, k, 8);
      for (const row of [0, 21, 38, 63]) stored[row * k + row] = row % 2 === 0 ? 0x5800 : 0xd800;
      const matrix = createMatrix("F16", rows, k, stored);
      for (const n of [1, 2, 3, 4, 9]) {
        rig.reset();
        const x = randomFloats(n * k, n);
        assertProducts(matrix, x, multiply(rig, "F16", pack(rig, matrix), rows, k, x));
      }
    });

    it("take no more time for subnormal values than for others", () => {
      rig.reset();
      const [rows, k, n] = [64, 512, 32];
      const [subnormal, normal] = [0x0155, 0x2555].map((bits) =>
        pack(rig, createMatrix("F16", rows, k, new Uint16Array(rows * k).fill(bits))),
      ) as [number, number];
      const prepared = rig.reserve(rig.kernels.activationBytes(types.F16, n, k));
      rig.kernels.prepare(types.F16, rig.place(randomFloats(n * k, 9)), k, n, k, prepared);
      const y = rig.reserve(n * rows * floatBytes);
      const least = (at: number) => {
        let ms = Number.POSITIVE_INFINITY;
        for (let round = 0; round < 20; round++) {
          const startMs = performance.now();
          rig.kernels.multiply(types.F16, at, rows, k, prepared, n, y, rows);
          ms = Math.min(ms, performance.now() - startMs);
        }
        return ms;
      };
      least(normal);
      const ratio = least(subnormal) / least(normal);
      assert.ok(ratio < 2, `${ratio.toFixed(1)} times as long`);
    });
  });
}
