// 16-bit floats: every value is converted in both directions, and numbers between two values are rounded to the nearer one.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { halfBits, halfValues } from "../../../../engines/files/lora/half-floats.ts";

describe("16-bit floats", () => {
  it("are decoded to the numbers of the format", () => {
    const known = [
      [0x3c00, 1],
      [0xc000, -2],
      [0x7bff, 65504],
      [0x0400, 2 ** -14],
      [0x0001, 2 ** -24],
      [0x3555, 0.333251953125],
      [0x7c00, Number.POSITIVE_INFINITY],
    ] as const;
    for (const [bits, value] of known) {
      assert.equal(halfValues()[bits], value);
      assert.equal(halfBits(value), bits);
    }
    assert.equal(halfBits(-0), 0x8000);
    assert.ok(Number.isNaN(halfValues()[halfBits(Number.NaN)]));
  });

  it("are encoded to the same bits", () => {
    const values = halfValues();
    for (let bits = 0; bits < 0x10000; bits++) {
      const value = values[bits]!;
      if (!Number.isNaN(value)) assert.equal(halfBits(value), bits);
    }
  });

  it("are nearest to any number, ties to even", () => {
    const values = halfValues();
    const check = (value: number): void => {
      const bits = halfBits(value);
      const distance = Math.abs(values[bits]! - value);
      for (const other of [bits - 1, bits + 1].filter(
        (next) => Number.isFinite(values[next]) && next >>> 15 === bits >>> 15,
      )) {
        const otherDistance = Math.abs(values[other]! - value);
        assert.ok(distance < otherDistance || (distance === otherDistance && bits % 2 === 0), `${value}: ${bits}`);
      }
    };
    fc.assert(fc.property(fc.float({ min: -65504, max: 65504, noNaN: true }), check), { numRuns: 2000 });
    fc.assert(fc.property(fc.float({ min: Math.fround(-1e-4), max: Math.fround(1e-4), noNaN: true }), check), {
      numRuns: 2000,
    });
    for (const [value, bits] of [
      [2049, 0x6800],
      [2051, 0x6802],
      [65519, 0x7bff],
      [65520, 0x7c00],
    ] as const) {
      assert.equal(halfBits(value), bits);
    }
  });
});
