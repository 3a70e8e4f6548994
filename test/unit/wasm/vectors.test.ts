import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createRig, randomFloats, twins } from "./kernel-fixtures.ts";

const floatBytes = 4;

/** How far apart two numbers are, relative to the right one. */
function relativeError(got: number, right: number): number {
  return got === right ? 0 : Math.abs(got - right) / Math.abs(right);
}

function silu(x: number): number {
  return x / (1 + Math.exp(-x));
}

for (const twin of twins) {
  const rig = await createRig(twin);

  describe(`the ${twin} rmsNorm`, () => {
    it("divides rows of any length by their root mean square", () => {
      for (const k of [1, 2, 3, 4, 7, 16, 21, 64, 576]) {
        rig.reset();
        const n = 3;
        const x = randomFloats(n * k, k, 10);
        const weight = randomFloats(k, 1);
        const out = rig.reserve(n * k * floatBytes);
        rig.kernels.rmsNorm(rig.place(x), rig.place(weight), out, n, k, 1e-5);
        for (const [i, got] of rig.floats(out, n * k).entries()) {
          const row = Math.floor(i / k);
          const squares = x.subarray(row * k, (row + 1) * k).reduce((sum, value) => sum + value * value, 0);
          const right = (x[i]! / Math.sqrt(squares / k + 1e-5)) * weight[i % k]!;
          assert.ok(relativeError(got, right) < 1e-6, `${got} where ${right} is right, of ${k}`);
        }
        rig.assertUntouched(out + n * k * floatBytes, 4);
      }
    });

    it("makes zeros of zeros", () => {
      rig.reset();
      const x = rig.place(new Float32Array(20));
      rig.kernels.rmsNorm(x, rig.place(randomFloats(20, 1)), x, 1, 20, 1e-6);
      assert.ok(rig.floats(x, 20).every((value) => value === 0));
    });
  });

  describe(`the ${twin} swiglu`, () => {
    const swiglu = (gate: Float32Array, up: Float32Array): Float32Array => {
      rig.reset();
      const at = rig.place(gate);
      rig.kernels.swiglu(at, rig.place(up), at, gate.length);
      rig.assertUntouched(at + gate.length * floatBytes, 4);
      return rig.floats(at, gate.length);
    };

    it("is within a millionth over the whole range", () => {
      const gate = Float32Array.from({ length: 40_000 }, (_, i) => (i - 20_000) * 0.0044);
      const got = swiglu(gate, new Float32Array(gate.length).fill(1));
      const errors = got.map((value, i) => relativeError(value, silu(gate[i]!)));
      const worst = errors.reduce((at, error, i) => (error > errors[at]! ? i : at), 0);
      assert.ok(errors[worst]! <= 1e-6, `silu(${gate[worst]}) came to ${got[worst]}`);
    });

    it("takes any length, in place", () => {
      for (const count of [1, 2, 3, 4, 5, 8, 11]) {
        const gate = randomFloats(count, count, 5);
        const up = randomFloats(count, 9);
        for (const [i, value] of swiglu(gate, up).entries()) {
          assert.ok(relativeError(value, silu(gate[i]!) * up[i]!) <= 1e-6);
        }
      }
    });

    it("is the gate itself where it is large, nothing where it is very negative, and NaN where it is NaN", () => {
      const gate = Float32Array.of(100, 3e38, Number.POSITIVE_INFINITY, -100, -3e38, Number.NEGATIVE_INFINITY, 0);
      const got = swiglu(gate, new Float32Array(gate.length).fill(1));
      assert.deepEqual(
        [...got].map((value) => value + 0),
        [100, Math.fround(3e38), Number.POSITIVE_INFINITY, 0, 0, 0, 0],
      );
      assert.ok(swiglu(new Float32Array(6).fill(Number.NaN), randomFloats(6, 1)).every(Number.isNaN));
    });
  });

  describe(`the ${twin} rope`, () => {
    /** Pairs of floats a rotation turns, by what the file's order of them is called. */
    const pairings = {
      normal: (pair: number) => [2 * pair, 2 * pair + 1] as const,
      neox: (pair: number, pairs: number) => [pair, pair + pairs] as const,
    };

    for (const [name, pairOf] of Object.entries(pairings)) {
      it(`turns ${name} pairs of every head and row, and nothing else`, () => {
        for (const [headLength, rotated] of [
          [64, 64],
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
