// K-quant kernels: both variants and every multiplication method are compared with plain floating point.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Random } from "../../../../engines/decoding/sampler/random.ts";
import { tensorTypes } from "../../../../engines/files/gguf/tensors.ts";
import type { KernelExports } from "../../../../engines/wasm/load/kernel-exports.ts";
import { createMemory, instantiateKernels } from "../../../../engines/wasm/load/kernel-module.ts";
import { loadWith } from "./kernel-fixtures.ts";

/** Components of a weight, which is scale * level - least. `level`: the quantized value. */
interface Weight {
  readonly scale: number;
  readonly level: number;
  readonly least: number;
}

interface KQuant {
  readonly name: string;
  readonly type: number;
  /** Byte offsets of the float16 values in a block. */
  readonly halvesAt: readonly number[];
  /** Returns the weight in column `c` by the format's definition. `d`: super-block scale of the scales; `m`: that of the minimums. */
  readonly weight: (block: Uint8Array, c: number, d: number, m: number) => Weight;
}

const bit = (byte: number, index: number) => (byte >> index) & 1;
const signed = (byte: number) => (byte << 24) >> 24;

/** Returns the 6-bit scale and min of 32 columns, from 12 bytes. */
function sixBits(block: Uint8Array, from: number, b: number): [number, number] {
  const at = (i: number) => block[from + i]!;
  if (b < 4) return [at(b) & 63, at(b + 4) & 63];
  return [(at(b + 4) & 15) | ((at(b - 4) >> 6) << 4), (at(b + 4) >> 4) | ((at(b) >> 6) << 4)];
}

const nibbleOf64 = (block: Uint8Array, from: number, c: number) =>
  (block[from + (c >> 6) * 32 + (c & 31)]! >> (c & 32 ? 4 : 0)) & 15;
const twoBitsOf128 = (block: Uint8Array, from: number, c: number) =>
  (block[from + (c >> 7) * 32 + (c & 31)]! >> (2 * ((c >> 5) & 3))) & 3;

const iq4 = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

const types: readonly KQuant[] = [
  {
    name: "Q2_K",
    type: 10,
    halvesAt: [80, 82],
    weight: (block, c, d, m) => {
      const scales = block[c >> 4]!;
      return { scale: d * (scales & 15), level: twoBitsOf128(block, 16, c), least: m * (scales >> 4) };
    },
  },
  {
    name: "Q3_K",
    type: 11,
    halvesAt: [108],
    weight: (block, c, d) => {
      const i = c >> 4;
      const low = (block[96 + (i & 7)]! >> (i < 8 ? 0 : 4)) & 15;
      const high = (block[104 + (i & 3)]! >> (2 * (i >> 2))) & 3;
      const level = twoBitsOf128(block, 32, c) - (bit(block[c & 31]!, c >> 5) ? 0 : 4);
      return { scale: d * ((low | (high << 4)) - 32), level, least: 0 };
    },
  },
  {
    name: "Q4_K",
    type: 12,
    halvesAt: [0, 2],
    weight: (block, c, d, m) => {
      const [scale, least] = sixBits(block, 4, c >> 5);
      return { scale: d * scale, level: nibbleOf64(block, 16, c), least: m * least };
    },
  },
  {
    name: "Q5_K",
    type: 13,
    halvesAt: [0, 2],
    weight: (block, c, d, m) => {
      const [scale, least] = sixBits(block, 4, c >> 5);
      const level = nibbleOf64(block, 48, c) + 16 * bit(block[16 + (c & 31)]!, c >> 5);
      return { scale: d * scale, level, least: m * least };
    },
  },
  {
    name: "Q6_K",
    type: 14,
    halvesAt: [208],
    weight: (block, c, d) => {
      const quarter = (c >> 5) & 3;
      const low = block[(c >> 7) * 64 + (quarter & 1) * 32 + (c & 31)]! >> (quarter > 1 ? 4 : 0);
      const high = block[128 + (c >> 7) * 32 + (c & 31)]! >> (2 * quarter);
      return { scale: d * signed(block[192 + (c >> 4)]!), level: ((low & 15) | ((high & 3) << 4)) - 32, least: 0 };
    },
  },
  {
    name: "IQ4_XS",
    type: 23,
    halvesAt: [0],
    weight: (block, c, d) => {
      const b = c >> 5;
      const low = (block[4 + (b >> 1)]! >> (4 * (b & 1))) & 15;
      const high = ((block[2]! | (block[3]! << 8)) >> (2 * b)) & 3;
      const level = iq4[(block[8 + b * 16 + (c & 15)]! >> (c & 16 ? 4 : 0)) & 15]!;
      return { scale: d * ((low | (high << 4)) - 32), level, least: 0 };
    },
  },
];

/** Addresses in the kernels' memory. */
const at = { source: 1 << 20, matrix: 2 << 20, floats: 3 << 20, activations: 4 << 20, out: 5 << 20 };
const memory = createMemory((6 << 20) >> 16);
const bytes = new Uint8Array(memory.buffer);

const ways: { name: string; kernels: KernelExports }[] = [];
for (const wish of ["plain", "relaxed-narrow", "relaxed"]) {
  const module = await loadWith(wish);
  if (wish === "relaxed" && !module.wideDot) continue;
  ways.push({
    name: `the ${module.variant} variant${module.wideDot ? " and the wide dot" : ""}`,
    kernels: instantiateKernels(module, memory),
  });
}

function half(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25));
}

/** Bits of float16 values: both signs, zeros, subnormal, small, ordinary, the largest. */
const hardHalves = [0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x1234, 0x9abc, 0x2c00, 0xac01, 0x3c00, 0x7bff, 0xfbff];

interface Matrix {
  readonly quant: KQuant;
  readonly rows: number;
  readonly k: number;
  readonly file: Uint8Array;
}

type Draw = () => number;

const blockBytes = ({ type }: KQuant) => tensorTypes.get(type)!.blockBytes;
const rowBytes = ({ quant, k }: Pick<Matrix, "quant" | "k">) => (k / 256) * blockBytes(quant);
const padded = (rows: number) => Math.ceil(rows / 16) * 16;

/** Returns random rows in file format. `scale` draws the bits of each float16 and `byte` all other bytes. */
function createMatrix(quant: KQuant, rows: number, k: number, scale: Draw, byte: Draw): Matrix {
  const file = Uint8Array.from({ length: rows * rowBytes({ quant, k }) }, () => Math.floor(byte() * 256));
  const data = new DataView(file.buffer);
  for (let block = 0; block < file.length; block += blockBytes(quant)) {
    for (const place of quant.halvesAt) data.setUint16(block + place, scale(), true);
  }
  return { quant, rows, k, file };
}

function weights({ quant, k, file }: Matrix, row: number): Weight[] {
  const data = new DataView(file.buffer);
  return Array.from({ length: k }, (_, c) => {
    const from = (row * (k / 256) + (c >> 8)) * blockBytes(quant);
    const [d = 0, m = 0] = quant.halvesAt.map((place) => half(data.getUint16(from + place, true)));
    return quant.weight(file.subarray(from, from + blockBytes(quant)), c & 255, d, m);
  });
}

const weightValue = ({ scale, level, least }: Weight) => scale * level - least;

function pack(kernels: KernelExports, { quant, rows, k, file }: Matrix): number {
  bytes.set(file, at.source);
  const size = kernels.matrixBytes(quant.type, padded(rows), k);
  bytes.fill(0xa5, at.matrix, at.matrix + size + 16);
  const report = kernels.packRows(quant.type, at.source, at.matrix, 0, rows, padded(rows), k);
  assert.ok(bytes.subarray(at.matrix + size, at.matrix + size + 16).every((byte) => byte === 0xa5));
  return report;
}

function readRow(kernels: KernelExports, type: number, row: number, rows: number, k: number): Float32Array {
  kernels.readRow(type, at.matrix, row, rows, k, at.out);
  return new Float32Array(memory.buffer, at.out, k).slice();
}

function assertRow(kernels: KernelExports, matrix: Matrix, row: number): void {
  const { quant, rows, k } = matrix;
  const expected = Float32Array.from(weights(matrix, row), weightValue);
  assert.deepEqual(readRow(kernels, quant.type, row, padded(rows), k), expected, `row ${row}`);
}

function prepare(kernels: KernelExports, type: number, k: number, x: readonly Float32Array[]): void {
  const stride = k + 4;
  x.forEach((column, i) => {
    new Float32Array(memory.buffer, at.floats + 4 * i * stride, k).set(column);
  });
  const size = kernels.activationBytes(type, x.length, k);
  assert.equal(size % 16, 0);
  bytes.fill(0xa5, at.activations + size, at.activations + size + 16);
  kernels.prepare(type, at.floats, stride, x.length, k, at.activations);
  assert.ok(bytes.subarray(at.activations + size, at.activations + size + 16).every((byte) => byte === 0xa5));
}

/** Returns the products of the most recently packed matrix and the most recently prepared rows. */
function multiplyPrepared(kernels: KernelExports, { quant, rows, k }: Matrix, n: number): Float32Array[] {
  const stride = padded(rows) + 8;
  const y = new Float32Array(memory.buffer, at.out, n * stride);
  y.fill(777);
  kernels.multiply(quant.type, at.matrix, padded(rows), k, at.activations, n, at.out, stride);
  return Array.from({ length: n }, (_, i) => {
    const gap = y.subarray(i * stride + padded(rows), (i + 1) * stride);
    assert.ok(
      gap.every((value) => value === 777),
      "a product writes past its rows",
    );
    return y.slice(i * stride, i * stride + padded(rows));
  });
}

function multiply(kernels: KernelExports, matrix: Matrix, x: readonly Float32Array[]): Float32Array[] {
  prepare(kernels, matrix.quant.type, matrix.k, x);
  return multiplyPrepared(kernels, matrix, x.length);
}

/** Returns the exact product in double precision, and the sum of the magnitudes of its terms. */
function product(row: readonly Weight[], x: Float32Array): { value: number; magnitude: number } {
  let value = 0;
  let magnitude = 0;
  row.forEach((weight, c) => {
    value += weightValue(weight) * x[c]!;
    magnitude += (Math.abs(weight.scale * weight.level) + Math.abs(weight.least)) * Math.abs(x[c]!);
  });
  return { value, magnitude };
}

/**
 * Returns the error bound of a product with rounded activations. Every 32 activations share one scale and have 127 steps on
 * each side of zero.
 */
function roundingBound(row: readonly Weight[], x: Float32Array): number {
  let bound = 0;
  for (let from = 0; from < x.length; from += 32) {
    const largest = x.subarray(from, from + 32).reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    const weight = row.slice(from, from + 32).reduce((sum, one) => sum + Math.abs(weightValue(one)), 0);
    bound += weight * largest * (largest < 1e-30 ? 1 : 1 / 253);
  }
  return bound;
}

/** Returns integers that include -127 and 127 in each block of 32, so that quantizing them is exact. */
function exactColumn(k: number, next: Draw): Float32Array {
  const x = Float32Array.from({ length: k }, () => Math.round(next() * 254) - 127);
  for (let c = 0; c < k; c += 32) x[c + Math.floor(next() * 32)] = next() < 0.5 ? 127 : -127;
  return x;
}

function drawing(seed: number): Draw {
  const random = new Random(BigInt(seed));
  return () => random.next();
}

const batches = [1, 2, 3, 4, 7, 8, 9, 13];
/**
 * Number of columns, of 2048 values each, that exceeds the cache. They are multiplied in several chunks, of which the last has
 * one column.
 */
const moreThanFitCache = 65;

for (const { name, kernels } of ways) {
  for (const quant of types) {
    const { type } = quant;
    const ordinary = (next: Draw) => () => (next() < 0.5 ? 0x8000 : 0) + 0x1800 + Math.floor(next() * 3000);
    describe(`${quant.name} matrices with ${name}`, () => {
      it("take at most a twentieth more bytes than in the file", () => {
        const file = 48 * rowBytes({ quant, k: 512 });
        const packed = kernels.matrixBytes(type, 48, 512);
        assert.ok(packed >= file && packed <= file * 1.05, `${packed} against ${file}`);
        assert.equal(kernels.matrixBytes(type, 16, 256) % 16, 0);
      });

      it("return each row exactly as the format defines it, for every kind of scale", () => {
        const next = drawing(type);
        const matrix = createMatrix(quant, 16, 512, () => hardHalves[Math.floor(next() * hardHalves.length)]!, next);
        assert.equal(pack(kernels, matrix), 0);
        for (let row = 0; row < 16; row++) assertRow(kernels, matrix, row);
      });

      it("are packed a piece at a time, and rows that do not exist become zeros", () => {
        const next = drawing(11);
        const matrix = createMatrix(quant, 37, 256, ordinary(next), next);
        bytes.set(matrix.file, at.source);
        bytes.fill(0xa5, at.matrix, at.matrix + kernels.matrixBytes(type, 48, 256));
        assert.equal(kernels.packRows(type, at.source + 16 * rowBytes(matrix), at.matrix, 16, 21, 48, 256), 0);
        assert.equal(kernels.packRows(type, at.source, at.matrix, 0, 16, 48, 256), 0);
        for (let row = 0; row < 37; row++) assertRow(kernels, matrix, row);
        for (let row = 37; row < 48; row++) {
          assert.ok(readRow(kernels, type, row, 48, 256).every((value) => value === 0));
        }
        for (const n of [1, 4]) {
          const x = Array.from({ length: n }, () => exactColumn(256, next));
          for (const y of multiply(kernels, matrix, x)) assert.ok(y.subarray(37).every((value) => value === 0));
        }
      });

      it("report the first row with a scale that is NaN or infinite", () => {
        const bad = [0x7c00, 0xfc00, 0x7e01, 0xffff];
        for (const [i, row] of [0, 5, 18, 36].entries()) {
          const matrix = createMatrix(quant, 37, 512, () => 0x2c00, drawing(3));
          const data = new DataView(matrix.file.buffer);
          const place = quant.halvesAt.at(i % 2 === 0 ? -1 : 0)!;
          data.setUint16(row * rowBytes(matrix) + blockBytes(quant) + place, bad[i]!, true);
          if (row < 36) data.setUint16(36 * rowBytes(matrix) + quant.halvesAt[0]!, bad[i]!, true);
          assert.equal(pack(kernels, matrix), row + 1);
        }
      });

      it("multiply exactly what is exact in 8 bits, for every batch", () => {
        const next = drawing(type + 1);
        for (const [rows, k] of [
          [16, 256],
          [48, 512],
          [16, 2048],
        ] as const) {
          const matrix = createMatrix(quant, rows, k, ordinary(next), next);
          assert.equal(pack(kernels, matrix), 0);
          const values = Array.from({ length: rows }, (_, row) => weights(matrix, row));
          for (const n of k > 512 ? [1, moreThanFitCache] : batches) {
            const x = Array.from({ length: n }, () => exactColumn(k, next));
            multiply(kernels, matrix, x).forEach((y, i) => {
              for (let row = i % 5; row < rows; row += n > 1 ? 5 : 1) {
                const { value, magnitude } = product(values[row]!, x[i]!);
                const error = Math.abs(y[row]! - value);
                assert.ok(
                  error <= 1e-6 * magnitude,
                  `${rows} x ${k}, column ${i} of ${n}, row ${row}: off by ${error}`,
                );
              }
            });
          }
        }
      });

      it("multiply exactly the largest quants by the largest activations", () => {
        for (const byte of [0, 255, 0x7f, 0x80]) {
          const matrix = createMatrix(
            quant,
            16,
            256,
            () => 0x2c01,
            () => byte / 256,
          );
          assert.equal(pack(kernels, matrix), 0);
          const x = [127, -127].map((value) => new Float32Array(256).fill(value));
          x.push(x[0]!.map((value, c) => (c & 1 ? -value : value)));
          x.push(x[0]!.map((value, c) => (c & 16 ? -value : value)));
          const row = weights(matrix, 3);
          const alone = x.map((column) => multiply(kernels, matrix, [column])[0]!);
          const twos = [x.slice(0, 2), x.slice(2)].flatMap((two) => multiply(kernels, matrix, two));
          for (const products of [alone, twos, multiply(kernels, matrix, x)]) {
            products.forEach((y, i) => {
              const { value, magnitude } = product(row, x[i]!);
              assert.ok(Math.abs(y[3]! - value) <= 1e-6 * magnitude, `${byte}, column ${i}: ${y[3]}, not ${value}`);
            });
          }
        }
      });

      it("multiply with a column alone as in any batch, bit for bit", () => {
        const next = drawing(type + 2);
        const matrix = createMatrix(quant, 48, 768, ordinary(next), next);
        assert.equal(pack(kernels, matrix), 0);
        const x = Array.from({ length: 13 }, () => Float32Array.from({ length: 768 }, () => next() * 4 - 2));
        const alone = x.map((column) => multiply(kernels, matrix, [column])[0]);
        for (const n of batches) assert.deepEqual(multiply(kernels, matrix, x.slice(0, n)), alone.slice(0, n));
      });

      it("have an error of at most half a step of each activation, whatever the activations", () => {
        const next = drawing(type + 3);
        const k = 256;
        const matrix = createMatrix(quant, 16, k, () => hardHalves[Math.floor(next() * hardHalves.length)]!, next);
        assert.equal(pack(kernels, matrix), 0);
        const kinds: Draw[] = [
          () => next() * 2 - 1,
          () => (next() - 0.5) ** 3 * 1e-6,
          () => (next() < 0.03 ? 4e6 : next() - 0.5),
          () => (next() < 0.5 ? 3e20 : -3e20),
          () => -0.7,
          () => 1e-20 * next(),
          () => 1e-36 * next(),
          () => 0,
        ];
        const x = kinds.map((kind) => Float32Array.from({ length: k }, kind));
        multiply(kernels, matrix, x).forEach((y, i) => {
          for (let row = 0; row < 16; row++) {
            const values = weights(matrix, row);
            const { value, magnitude } = product(values, x[i]!);
            const bound = roundingBound(values, x[i]!) + 2e-6 * magnitude;
            const error = Math.abs(y[row]! - value);
            assert.ok(error <= bound, `activations ${i}, row ${row}: off by ${error}, allowed ${bound}`);
          }
        });
      });

      it("never hide an activation that is NaN or infinite", () => {
        const next = drawing(5);
        const matrix = createMatrix(quant, 16, 256, () => 0x2c01, next);
        assert.equal(pack(kernels, matrix), 0);
        for (const bad of [Number.NaN, -Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]) {
          const x = Array.from({ length: 3 }, () => exactColumn(256, next));
          x[1]![37] = bad;
          const [before, spoilt, after] = multiply(kernels, matrix, x);
          assert.ok(!spoilt!.some(Number.isFinite), `${bad}`);
          assert.ok(before!.every(Number.isFinite) && after!.every(Number.isFinite));
        }
      });
    });
  }

  describe(`k-quants with ${name}`, () => {
    it("share prepared activations if their format is the same", () => {
      const next = drawing(9);
      const x = Array.from({ length: 3 }, () => exactColumn(512, next));
      for (const quant of types) {
        const matrix = createMatrix(quant, 16, 512, () => 0x2c01, next);
        pack(kernels, matrix);
        const own = multiply(kernels, matrix, x);
        for (const { type } of types) {
          if (kernels.activationForm(type) !== kernels.activationForm(quant.type)) continue;
          prepare(kernels, type, 512, x);
          assert.deepEqual(multiplyPrepared(kernels, matrix, x.length), own);
        }
      }
      const forms = [12, 14].map((type) => kernels.activationForm(type));
      assert.equal(forms[0], forms[1], "Q4_K and Q6_K are in the same models");
    });
  });
}
