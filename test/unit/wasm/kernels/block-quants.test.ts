// Block quantization kernels: both variants and every multiplication method are compared with plain floating point.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { KernelExports } from "../../../../engines/wasm/load/kernel-exports.ts";
import { createMemory, instantiateKernels } from "../../../../engines/wasm/load/kernel-module.ts";
import {
  type BlockFormat,
  type BlockMatrix,
  blockFormats,
  dequantise,
  randomMatrix,
  setScales,
  spoilScale,
} from "./block-formats.ts";
import { loadWith } from "./kernel-fixtures.ts";

/** Addresses in the kernels' memory. The start of the memory is reserved. */
const at = { source: 64 << 10, matrix: 4 << 20, floats: 8 << 20, activations: 10 << 20, out: 12 << 20 };
const memory = createMemory((16 << 20) >> 16);
const bytes = new Uint8Array(memory.buffer);

/** Kernel variants. The wide dot product is tested only if this machine has it. */
const ways: { name: string; kernels: KernelExports }[] = [];
for (const wish of ["plain", "relaxed-narrow", "relaxed"]) {
  const module = await loadWith(wish);
  if (wish === "relaxed" && !module.wideDot) continue;
  ways.push({
    name: `the ${module.variant} variant${module.wideDot ? " and the wide dot" : ""}`,
    kernels: instantiateKernels(module, memory),
  });
}

function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

const padded = (rows: number) => Math.ceil(rows / 16) * 16;

function pack(kernels: KernelExports, { type }: BlockFormat, { rows, k, file }: BlockMatrix): number {
  bytes.set(file, at.source);
  const size = kernels.matrixBytes(type, padded(rows), k);
  bytes.fill(0xa5, at.matrix, at.matrix + size + 16);
  const report = kernels.packRows(type, at.source, at.matrix, 0, rows, padded(rows), k);
  assert.equal(bytes[at.matrix + size], 0xa5, "packing writes past the matrix");
  return report;
}

function readRow(kernels: KernelExports, type: number, row: number, rows: number, k: number): Float32Array {
  kernels.readRow(type, at.matrix, row, rows, k, at.out);
  return new Float32Array(memory.buffer, at.out, k).slice();
}

/** Returns the product of the most recently packed matrix and the columns x, which have k floats each. */
function multiply(kernels: KernelExports, type: number, rows: number, k: number, x: Float32Array[]): Float32Array[] {
  const xStride = k + 4;
  const yStride = padded(rows) + 8;
  x.forEach((column, i) => {
    new Float32Array(memory.buffer, at.floats + 4 * i * xStride, k).set(column);
  });
  const size = kernels.activationBytes(type, x.length, k);
  bytes.fill(0xa5, at.activations + size, at.activations + size + 16);
  kernels.prepare(type, at.floats, xStride, x.length, k, at.activations);
  assert.equal(bytes[at.activations + size], 0xa5, "preparing writes past its bytes");
  const y = new Float32Array(memory.buffer, at.out, x.length * yStride);
  y.fill(777);
  kernels.multiply(type, at.matrix, padded(rows), k, at.activations, x.length, at.out, yStride);
  for (let i = 0; i < x.length; i++) assert.equal(y[i * yStride + padded(rows)], 777, "a product writes past its rows");
  return x.map((_, i) => y.slice(i * yStride, i * yStride + padded(rows)));
}

/** Returns the exact product in double precision, and the sum of the magnitudes of its terms. */
function product(row: Float32Array, x: Float32Array): { value: number; magnitude: number } {
  let value = 0;
  let magnitude = 0;
  row.forEach((w, c) => {
    value += w * x[c]!;
    magnitude += Math.abs(w * x[c]!);
  });
  return { value, magnitude };
}

/**
 * Returns the error bound of a product with rounded activations. Every 32 activations share one scale and have 127 steps on
 * each side of zero.
 */
function roundingBound(row: Float32Array, x: Float32Array): number {
  let bound = 0;
  for (let from = 0; from < x.length; from += 32) {
    const largest = x.subarray(from, from + 32).reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    const weight = row.subarray(from, from + 32).reduce((sum, value) => sum + Math.abs(value), 0);
    bound += (weight * largest) / 253;
    // Activations this small are rounded to zero.
    if (largest < 1e-30) bound += weight * largest;
    // Products with the smallest scales are rounded to zero too.
    bound += 1e-36 * largest + 1e-43;
  }
  return bound;
}

const shapes = [
  { rows: 16, k: 32 },
  { rows: 16, k: 1536 },
  { rows: 48, k: 96 },
  { rows: 64, k: 576 },
];
/** Number of columns, of 1536 values each, that exceeds the cache. They are multiplied in several chunks, of which the last is not full. */
const moreThanFitCache = 131;
const batches = [1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 32, 33, 64];

/** Returns integers that include -127 and 127 in each block of 32, so that quantizing them is exact. */
function exactColumn(k: number, next: () => number): Float32Array {
  const x = Float32Array.from({ length: k }, () => Math.round(next() * 254) - 127);
  for (let c = 0; c < k; c += 32) x[c + Math.floor(next() * 32)] = next() < 0.5 ? 127 : -127;
  return x;
}

for (const { name, kernels } of ways) {
  for (const quant of blockFormats) {
    const { type } = quant;
    describe(`${quant.name} matrices with ${name}`, () => {
      it("take as many bytes as in the file", () => {
        assert.equal(kernels.matrixBytes(type, 48, 96), 48 * 3 * quant.blockBytes);
        assert.equal(kernels.matrixBytes(type, 16, 32) % 16, 0);
      });

      it("return each row exactly as the format defines it, for every kind of scale", () => {
        const matrix = randomMatrix(quant, 32, 96, "any", random(type));
        assert.equal(pack(kernels, quant, matrix), 0);
        for (let row = 0; row < 32; row++) {
          assert.deepEqual(readRow(kernels, type, row, 32, 96), dequantise(quant, matrix, row), `row ${row}`);
        }
      });

      it("are packed a piece at a time, and rows that do not exist become zeros", () => {
        const next = random(11);
        const matrix = randomMatrix(quant, 37, 64, "usual", next);
        const rowBytes = matrix.file.length / 37;
        bytes.set(matrix.file, at.source);
        bytes.fill(0xa5, at.matrix, at.matrix + kernels.matrixBytes(type, 48, 64));
        assert.equal(kernels.packRows(type, at.source + 16 * rowBytes, at.matrix, 16, 21, 48, 64), 0);
        assert.equal(kernels.packRows(type, at.source, at.matrix, 0, 16, 48, 64), 0);
        for (let row = 0; row < 37; row++) {
          assert.deepEqual(readRow(kernels, type, row, 48, 64), dequantise(quant, matrix, row), `row ${row}`);
        }
        for (let row = 37; row < 48; row++) {
          assert.ok(readRow(kernels, type, row, 48, 64).every((value) => value === 0));
        }
        const [y] = multiply(kernels, type, 37, 64, [exactColumn(64, next)]);
        assert.ok(y!.subarray(37).every((value) => value === 0));
      });

      it("report the first row with a scale that is NaN or infinite", () => {
        for (const [i, row] of [0, 5, 18, 36].entries()) {
          const matrix = randomMatrix(quant, 37, 96, "usual", random(3));
          spoilScale(quant, matrix, row, i);
          spoilScale(quant, matrix, 36, i);
          assert.equal(pack(kernels, quant, matrix), row + 1);
        }
      });

      it("multiply exactly what is exact in 8 bits, for every batch", () => {
        const next = random(type + 1);
        for (const { rows, k } of shapes) {
          const matrix = randomMatrix(quant, rows, k, "usual", next);
          assert.equal(pack(kernels, quant, matrix), 0);
          const values = Array.from({ length: rows }, (_, row) => dequantise(quant, matrix, row));
          for (const n of k > 576 ? [1, 2, 4, moreThanFitCache] : batches) {
            const x = Array.from({ length: n }, () => exactColumn(k, next));
            multiply(kernels, type, rows, k, x).forEach((y, i) => {
              for (let row = i % 5; row < rows; row += n > 4 ? 5 : 1) {
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

      it("multiply exactly where sums are largest", () => {
        const next = random(type + 6);
        const matrix = randomMatrix(quant, 32, 64, "usual", next);
        for (const [row, byte] of [0x00, 0xff, 0x0f, 0xf0, 0x80, 0x7f, 0x77, 0x88].entries()) {
          matrix.file.fill(byte, row * 2 * quant.blockBytes, (row + 1) * 2 * quant.blockBytes);
        }
        setScales(quant, matrix, "usual", next);
        assert.equal(pack(kernels, quant, matrix), 0);
        const signs: ((c: number) => boolean)[] = [
          () => true,
          () => false,
          (c) => (c & 1) === 0,
          (c) => (c & 2) === 0,
          (c) => (c & 3) === 0,
          (c) => (c & 16) === 0,
        ];
        const x = signs.map((isPlus) => Float32Array.from({ length: 64 }, (_, c) => (isPlus(c) ? 127 : -127)));
        const alone = x.flatMap((column) => multiply(kernels, type, 32, 64, [column]));
        [...multiply(kernels, type, 32, 64, x), ...alone].forEach((y, i) => {
          const column = x[i % x.length]!;
          for (let row = 0; row < 32; row++) {
            const { value, magnitude } = product(dequantise(quant, matrix, row), column);
            assert.ok(Math.abs(y[row]! - value) <= 1e-6 * magnitude, `signs ${i % x.length}, row ${row}`);
          }
        });
      });

      it("multiply with a column alone as in any batch, bit for bit", () => {
        const next = random(type + 2);
        const matrix = randomMatrix(quant, 48, 576, "usual", next);
        assert.equal(pack(kernels, quant, matrix), 0);
        const x = Array.from({ length: 64 }, () => Float32Array.from({ length: 576 }, () => next() * 4 - 2));
        const alone = x.map((column) => multiply(kernels, type, 48, 576, [column])[0]);
        for (const n of batches) assert.deepEqual(multiply(kernels, type, 48, 576, x.slice(0, n)), alone.slice(0, n));
      });

      it("have an error of at most half a step of each activation, whatever the activations", () => {
        const next = random(type + 3);
        const k = 96;
        const matrix = randomMatrix(quant, 32, k, "any", next);
        assert.equal(pack(kernels, quant, matrix), 0);
        const kinds: (() => number)[] = [
          () => next() * 2 - 1,
          () => (next() - 0.5) ** 3 * 1e-6,
          () => (next() < 0.03 ? 4e6 : next() - 0.5),
          () => (next() < 0.5 ? 3e20 : -3e20),
          () => -0.7,
          () => 1e-20 * next(),
          () => 1e-36 * next(),
          () => 1e-39 * next(),
          () => 0,
        ];
        const x = kinds.map((kind) => Float32Array.from({ length: k }, kind));
        multiply(kernels, type, 32, k, x).forEach((y, i) => {
          for (let row = 0; row < 32; row++) {
            const values = dequantise(quant, matrix, row);
            const { value, magnitude } = product(values, x[i]!);
            const bound = roundingBound(values, x[i]!) + 2e-6 * magnitude;
            const error = Math.abs(y[row]! - value);
            assert.ok(error <= bound, `activations ${i}, row ${row}: off by ${error}, allowed ${bound}`);
          }
        });
      });

      it("have a small average error", () => {
        const next = random(type + 4);
        const k = 576;
        const matrix = randomMatrix(quant, 64, k, "usual", next);
        assert.equal(pack(kernels, quant, matrix), 0);
        const x = Array.from({ length: 5 }, () => Float32Array.from({ length: k }, () => next() + next() - 1));
        let squares = 0;
        let errors = 0;
        multiply(kernels, type, 64, k, x).forEach((y, i) => {
          for (let row = 0; row < 64; row++) {
            const values = dequantise(quant, matrix, row);
            const { value } = product(values, x[i]!);
            errors += (y[row]! - value) ** 2;
            for (let c = 0; c < k; c++) squares += (values[c]! * x[i]![c]!) ** 2;
          }
        });
        assert.ok(Math.sqrt(errors / squares) < 0.008, `relative error ${Math.sqrt(errors / squares)}`);
      });

      it("never hide an activation that is NaN or infinite", () => {
        const next = random(5);
        const matrix = randomMatrix(quant, 16, 64, "usual", next);
        assert.equal(pack(kernels, quant, matrix), 0);
        for (const bad of [Number.NaN, -Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]) {
          const x = Array.from({ length: 3 }, () => exactColumn(64, next));
          x[1]![37] = bad;
          const [before, spoilt, after] = multiply(kernels, type, 16, 64, x);
          assert.ok(!spoilt!.some(Number.isFinite), `${bad}`);
          assert.ok(before!.every(Number.isFinite) && after!.every(Number.isFinite));
        }
      });
    });
  }
}
