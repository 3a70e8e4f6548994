import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createRig, randomFloats, variants } from "./kernel-fixtures.ts";

const floatBytes = 4;
const rows = 3;
const lengths = [1, 2, 3, 4, 7, 16, 21, 64, 576];
const epsilon = 1e-5;

/** Returns the RMS norm of a row by its definition, in double precision. */
function rmsNormPlainly(x: Float32Array, weight: Float32Array): number[] {
  const mean = x.reduce((sum, value) => sum + value * value, 0) / x.length;
  return Array.from(x, (value, i) => (value / Math.sqrt(mean + epsilon)) * weight[i]!);
}

function layerNormPlainly(x: Float32Array, weight: Float32Array, bias: Float32Array | null): number[] {
  const mean = x.reduce((sum, value) => sum + value, 0) / x.length;
  const variance = x.reduce((sum, value) => sum + (value - mean) ** 2, 0) / x.length;
  return Array.from(x, (value, i) => ((value - mean) / Math.sqrt(variance + epsilon)) * weight[i]! + (bias?.[i] ?? 0));
}

function assertClose(got: Float32Array, right: readonly number[], what: string, tolerance = 1e-6): void {
  for (const [i, value] of got.entries()) {
    const error = Math.abs(value - right[i]!) / Math.max(1, Math.abs(right[i]!));
    assert.ok(error <= tolerance, `${what}: float ${i} is ${value} where ${right[i]} is right`);
  }
}

for (const variant of variants) {
  const rig = await createRig(variant);

  describe(`the ${variant} rmsNorm`, () => {
    it("divides rows of any length by their root mean square, with gaps between them", () => {
      for (const k of lengths) {
        rig.reset();
        const [xStride, outStride] = [k + 3, k + 2];
        const x = randomFloats(rows * xStride, k, 10);
        const weight = randomFloats(k, 1);
        const out = rig.reserve(rows * outStride * floatBytes);
        rig.kernels.rmsNorm(rig.place(x), xStride, rig.place(weight), out, outStride, rows, k, epsilon);
        for (let row = 0; row < rows; row++) {
          const right = rmsNormPlainly(x.subarray(row * xStride, row * xStride + k), weight);
          const at = out + row * outStride * floatBytes;
          assertClose(rig.floats(at, k), right, `row ${row} of ${k}`);
          rig.assertUntouched(at + k * floatBytes, 2 * floatBytes);
        }
      }
    });

    it("uses weights of 1 if their address is 0, in place", () => {
      for (const k of lengths) {
        rig.reset();
        const x = randomFloats(k, k, 10);
        const at = rig.place(x);
        rig.kernels.rmsNorm(at, k, 0, at, k, 1, k, epsilon);
        assertClose(rig.floats(at, k), rmsNormPlainly(x, new Float32Array(k).fill(1)), `row of ${k}`);
      }
    });

    it("returns zeros for zeros, in place", () => {
      rig.reset();
      const x = rig.place(new Float32Array(20));
      rig.kernels.rmsNorm(x, 20, rig.place(randomFloats(20, 1)), x, 20, 1, 20, 1e-6);
      assert.ok(rig.floats(x, 20).every((value) => value === 0));
    });
  });

  describe(`the ${variant} layerNorm`, () => {
    for (const [what, hasBias] of [
      ["with a bias", true],
      ["without", false],
    ] as const) {
      it(`centres rows of any length and divides them by their deviation, ${what}`, () => {
        for (const k of lengths) {
          rig.reset();
          const [xStride, outStride] = [k + 3, k + 2];
          const x = randomFloats(rows * xStride, k, 10);
          const weight = randomFloats(k, 1);
          const bias = hasBias ? randomFloats(k, 2) : null;
          const out = rig.reserve(rows * outStride * floatBytes);
          const [xAt, weightAt, biasAt] = [rig.place(x), rig.place(weight), bias ? rig.place(bias) : 0];
          rig.kernels.layerNorm(xAt, xStride, weightAt, biasAt, out, outStride, rows, k, epsilon);
          for (let row = 0; row < rows; row++) {
            const right = layerNormPlainly(x.subarray(row * xStride, row * xStride + k), weight, bias);
            const at = out + row * outStride * floatBytes;
            assertClose(rig.floats(at, k), right, `row ${row} of ${k}`, 2e-6);
            rig.assertUntouched(at + k * floatBytes, 2 * floatBytes);
          }
        }
      });
    }

    it("keeps a small deviation next to a large mean, in place", () => {
      rig.reset();
      const k = 64;
      const x = randomFloats(k, 5).map((value) => value + 1000);
      const at = rig.place(x);
      const ones = new Float32Array(k).fill(1);
      rig.kernels.layerNorm(at, k, rig.place(ones), 0, at, k, 1, k, epsilon);
      assertClose(rig.floats(at, k), layerNormPlainly(x, ones, null), "in place", 1e-3);
    });
  });

  describe(`the ${variant} rope`, () => {
    /** Indices of the two floats that a rotation changes, by kind of pairing. */
    const pairings = {
      normal: (pair: number) => [2 * pair, 2 * pair + 1] as const,
      neox: (pair: number, pairs: number) => [pair, pair + pairs] as const,
    };

    for (const [name, pairOf] of Object.entries(pairings)) {
      it(`rotates ${name} pairs of every head and row, and nothing else`, () => {
        for (const [headLength, rotated] of [
          [64, 64],
          [80, 20],
          [96, 96],
          [256, 256],
          [20, 12],
          [16, 6],
          [8, 2],
          [10, 10],
        ] as const) {
          rig.reset();
          const [n, heads] = [3, 2];
          const stride = heads * headLength + 4;
          const pairs = rotated / 2;
          const x = randomFloats(n * stride, rotated, 3);
          const angles = randomFloats(n * pairs, 1, 4);
          const table = Float32Array.from({ length: n * rotated }, (_, i) => {
            const angle = angles[i >> 1]!;
            return i & 1 ? Math.sin(angle) : Math.cos(angle);
          });
          const right = Float64Array.from(x);
          for (let i = 0; i < n * heads * pairs; i++) {
            const [row, head, pair] = [Math.floor(i / heads / pairs), Math.floor(i / pairs) % heads, i % pairs];
            const [first, second] = pairOf(pair, pairs).map((at) => row * stride + head * headLength + at);
            const angle = angles[row * pairs + pair]!;
            right[first!] = x[first!]! * Math.cos(angle) - x[second!]! * Math.sin(angle);
            right[second!] = x[first!]! * Math.sin(angle) + x[second!]! * Math.cos(angle);
          }
          const at = rig.place(x);
          rig.kernels.rope(at, stride, n, heads, headLength, rotated, rig.place(table), name === "neox" ? 1 : 0);
          for (const [i, got] of rig.floats(at, x.length).entries()) {
            assert.ok(Math.abs(got - right[i]!) < 1e-6, `float ${i} is ${got} where ${right[i]} is right`);
          }
          rig.assertUntouched(at + x.length * floatBytes, 16);
        }
      });
    }
  });
}
