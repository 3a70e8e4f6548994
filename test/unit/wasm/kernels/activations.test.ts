import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createRig, randomFloats, variants } from "./kernel-fixtures.ts";

const floatBytes = 4;
const counts = [1, 2, 3, 4, 5, 8, 11];

/** Activation functions in double precision, and the numbers by which the kernels select them. */
const activations = {
  silu: { number: 0, of: (x: number) => x / (1 + Math.exp(-x)) },
  gelu: { number: 1, of: (x: number) => x / (1 + Math.exp(-2 * Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))) },
} as const;

/** Returns the relative error of the result `got` if `right` is the exact value. */
function relativeError(got: number, right: number): number {
  return got === right ? 0 : Math.abs(got - right) / Math.abs(right);
}

/** Returns the largest relative error and its position. */
function worstOf(got: Float32Array, x: Float32Array, of: (x: number) => number) {
  const errors = got.map((value, i) => relativeError(value, of(x[i]!)));
  const at = errors.reduce((worst, error, i) => (error > errors[worst]! ? i : worst), 0);
  return { error: errors[at]!, what: `of ${x[at]} came ${got[at]}` };
}

function everyStep(from: number, to: number): Float32Array {
  const steps = 40_000;
  return Float32Array.from({ length: steps + 1 }, (_, i) => from + ((to - from) * i) / steps);
}

for (const variant of variants) {
  const rig = await createRig(variant);

  const activate = (activation: number, x: Float32Array): Float32Array => {
    rig.reset();
    const at = rig.place(x);
    const out = rig.reserve(x.byteLength);
    rig.kernels.activate(activation, at, out, x.length);
    assert.deepEqual(rig.floats(at, x.length), x);
    rig.assertUntouched(out + x.byteLength, floatBytes);
    return rig.floats(out, x.length);
  };

  for (const [name, { number, of }] of Object.entries(activations)) {
    describe(`the ${variant} ${name}`, () => {
      it("has a relative error below 1e-6 over the relevant range", () => {
        const range = name === "silu" ? everyStep(-88, 88) : everyStep(-3.5, 10);
        const { error, what } = worstOf(activate(number, range), range, of);
        assert.ok(error <= 1e-6, what);
      });

      it("has a relative error below 1e-5 for tiny results", () => {
        const range = everyStep(-88, name === "silu" ? -20 : -3.5).filter((x) => Math.abs(of(x)) > 1e-30);
        assert.ok(range.length > 1000);
        const { error, what } = worstOf(activate(number, range), range, of);
        assert.ok(error <= 2e-5, what);
      });

      it("takes any length, alone and as a gate in place", () => {
        for (const count of counts) {
          const x = randomFloats(count, count, 3);
          const up = randomFloats(count, 9);
          for (const [i, value] of activate(number, x).entries()) assert.ok(relativeError(value, of(x[i]!)) <= 1e-6);
          rig.reset();
          const at = rig.place(x);
          rig.kernels.gate(number, at, rig.place(up), at, count);
          rig.assertUntouched(at + count * floatBytes, 4);
          for (const [i, value] of rig.floats(at, count).entries()) {
            assert.ok(relativeError(value, of(x[i]!) * up[i]!) <= 1e-6);
          }
        }
      });

      it("returns large numbers unchanged, 0 for very negative ones, and NaN for NaN", () => {
        const x = Float32Array.of(100, 3e38, Number.POSITIVE_INFINITY, -100, -3e38, Number.NEGATIVE_INFINITY, 0);
        assert.deepEqual(
          Array.from(activate(number, x), (value) => value + 0),
          [100, Math.fround(3e38), Number.POSITIVE_INFINITY, 0, 0, 0, 0],
        );
        assert.ok(activate(number, new Float32Array(6).fill(Number.NaN)).every(Number.isNaN));
      });
    });
  }

  describe(`the ${variant} softcap`, () => {
    const softcap = (x: Float32Array, cap: number): Float32Array => {
      rig.reset();
      const at = rig.place(x);
      rig.kernels.softcap(at, x.length, cap);
      rig.assertUntouched(at + x.byteLength, floatBytes);
      return rig.floats(at, x.length);
    };

    it("is the cap times the hyperbolic tangent, with an error below a millionth of the cap", () => {
      for (const cap of [1, 30, 50]) {
        const x = everyStep(-10 * cap, 10 * cap);
        for (const [i, value] of softcap(x, cap).entries()) {
          const right = cap * Math.tanh(x[i]! / cap);
          assert.ok(Math.abs(value - right) <= 5e-7 * cap, `of ${x[i]} with cap ${cap} came ${value}`);
        }
      }
    });

    it("accepts any length", () => {
      for (const count of counts) {
        const x = randomFloats(count, count, 40);
        for (const [i, value] of softcap(x, 30).entries()) {
          assert.ok(Math.abs(value - 30 * Math.tanh(x[i]! / 30)) <= 2e-5);
        }
      }
    });

    it("saturates at the cap, and returns NaN for NaN", () => {
      const x = Float32Array.of(1e5, 3e38, Number.POSITIVE_INFINITY, -1e5, -3e38, Number.NEGATIVE_INFINITY, 0);
      assert.deepEqual([...softcap(x, 30)], [30, 30, 30, -30, -30, -30, 0]);
      assert.ok(softcap(new Float32Array(6).fill(Number.NaN), 30).every(Number.isNaN));
    });
  });
}
