import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { tensorTypes } from "../../../engines/files/gguf/tensors.ts";
import { BlockCodec } from "../../../engines/quantization/codec/block-codec.ts";
import { encodableTypes, largestValue } from "../../../engines/quantization/codec/codec-types.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { bytesOf, gaussianRows, heavyTailedRows, randomImportance } from "../../fixtures/quantization/rows.ts";

const [f32, f16, q4_0, q8_0, q4_k, iq2_xxs, bf16] = [0, 1, 2, 8, 12, 16, 30] as const;
const columns = 512;
const types = [...encodableTypes];
const codec = BlockCodec.create();

function encode(type: number, values: Float32Array, width = columns, importance: Float32Array | null = null) {
  const out = new Uint8Array(bytesOf(type, values.length));
  codec.encodeRows(type, values, width, importance, out);
  return out;
}

function decode(type: number, bytes: Uint8Array, count: number, width = columns): Float32Array {
  const out = new Float32Array(count);
  codec.decodeRows(type, bytes, width, out);
  return out;
}

function nameOf(type: number): string {
  return tensorTypes.get(type)?.name ?? String(type);
}

function refuses(code: string, message: RegExp, body: () => void): void {
  assert.throws(body, (error) => {
    assert.ok(error instanceof ServerError, String(error));
    assert.equal(error.code, code);
    assert.match(error.message, message);
    return true;
  });
}

describe("rows in the types of GGUF files", () => {
  for (const type of types) {
    describe(nameOf(type), () => {
      for (const importance of [null, randomImportance(columns)]) {
        const how = importance ? "with importance" : "without importance";
        it(`keeps zeros, ${how}`, () => {
          const bytes = encode(type, new Float32Array(columns), columns, importance);
          assert.ok(decode(type, bytes, columns).every((value) => value === 0));
        });

        it(`keeps constant rows, ${how}`, () => {
          for (const value of [1, -1, 0.375, -3000]) {
            const bytes = encode(type, new Float32Array(columns).fill(value), columns, importance);
            const worst = decode(type, bytes, columns).reduce((most, one) => Math.max(most, Math.abs(one - value)), 0);
            // MXFP4's levels include 4 and 6 times a power of two: 3000 is between 2048 and 3072.
            assert.ok(worst <= 0.04 * Math.abs(value), `${value}: off by ${worst}`);
          }
        });

        it(`keeps one huge value among small ones, ${how}`, () => {
          const { values } = gaussianRows(1, columns);
          const huge = 50_000;
          values[77] = huge;
          const decoded = decode(type, encode(type, values, columns, importance), columns);
          const error = Math.abs((decoded[77] ?? Number.NaN) - huge);
          assert.ok(error <= 0.15 * huge, `off by ${error}`);
          assert.ok(decoded.every(Number.isFinite));
        });

        it(`has finite values, none far beyond the largest, whatever the magnitudes: ${how}`, () => {
          const most = Math.log2(Math.min(largestValue(type), 1e30)) - 0.01;
          const value = fc.tuple(fc.double({ min: -148, max: most, noNaN: true }), fc.boolean());
          const block = fc.array(value, { minLength: 256, maxLength: 256 });
          const check = (magnitudes: (readonly [number, boolean])[]) => {
            const values = Float32Array.from(magnitudes, ([power, isNegative]) => (isNegative ? -1 : 1) * 2 ** power);
            const decoded = decode(type, encode(type, values, 256, importance?.subarray(0, 256) ?? null), 256, 256);
            const peak = values.reduce((largest, one) => Math.max(largest, Math.abs(one)), 0);
            assert.ok(decoded.every((one) => Math.abs(one) <= 2.1 * peak + 1e-7));
          };
          fc.assert(fc.property(block, check), { numRuns: 30 });
        });
      }

      it("encodes many rows like single rows, from and to any part of a buffer", () => {
        const rows = 300;
        const { values } = heavyTailedRows(rows, columns);
        const importance = randomImportance(columns);
        const shared = new Float32Array(new SharedArrayBuffer(4 * values.length + 4), 4);
        shared.set(values);
        const together = encode(type, shared, columns, importance);
        const rowBytes = bytesOf(type, columns);
        for (const row of [0, 1, 127, 128, 129, rows - 1]) {
          const alone = encode(type, values.subarray(row * columns, (row + 1) * columns), columns, importance);
          assert.deepEqual(together.subarray(row * rowBytes, (row + 1) * rowBytes), alone);
        }
        const decoded = decode(type, together, values.length);
        const last = decode(type, together.subarray(-rowBytes), columns);
        assert.deepEqual(decoded.subarray(-columns), last);
      });

      it("does not depend on the unit of the importance", () => {
        const { values } = gaussianRows(2, columns);
        const importance = randomImportance(columns);
        const larger = importance.map((one) => one * 2 ** 40);
        assert.deepEqual(encode(type, values, columns, larger), encode(type, values, columns, importance));
        const [zeros, ones] = [new Float32Array(columns), new Float32Array(columns).fill(1)];
        assert.deepEqual(encode(type, values, columns, zeros), encode(type, values, columns, ones));
      });
    });
  }

  it("takes rows whose number of blocks is not a multiple of four", () => {
    const width = 96;
    const { values } = gaussianRows(3, width);
    const importance = randomImportance(width);
    for (const type of types.filter((one) => (tensorTypes.get(one)?.blockLength ?? 256) < 256)) {
      const decoded = decode(type, encode(type, values, width, importance), values.length, width);
      const worst = decoded.reduce((most, one, i) => Math.max(most, Math.abs(one - (values[i] ?? 0))), 0);
      assert.ok(worst < 0.02, `${nameOf(type)}: off by ${worst}`);
    }
  });

  it("decodes all F16 and BF16 values, and encodes them to the same bits", () => {
    for (const type of [f16, bf16]) {
      const bits = Uint16Array.from({ length: 65_536 }, (_, i) => i);
      const values = decode(type, new Uint8Array(bits.buffer), bits.length, 1024);
      const isInfinite = (i: number) => (i & 0x7fff) >= (type === f16 ? 0x7c00 : 0x7f80);
      assert.ok(values.every((value, i) => Number.isFinite(value) !== isInfinite(i)));
      const kept = bits.filter((i) => !isInfinite(i));
      const again = encode(type, values.filter(Number.isFinite), kept.length / 2);
      assert.deepEqual(new Uint16Array(again.buffer), kept);
    }
  });

  it("rounds to the nearest F16, ties to even", () => {
    const values = Float32Array.of(
      1 + 2 ** -11,
      1 + 3 * 2 ** -11,
      -(2 ** -25),
      3 * 2 ** -25,
      65_504,
      2 ** -15 + 2 ** -26,
    );
    const expected = [1, 1 + 2 ** -9, 0, 2 ** -23, 65_504, 2 ** -15];
    assert.deepEqual(
      [...decode(f16, encode(f16, values, 6), 6, 6)].map((value) => value + 0),
      expected,
    );
  });
});

describe("what cannot be encoded", () => {
  const { values } = gaussianRows(2, columns);

  it("is a type without an encoder, which is named", () => {
    refuses("unsupported", /IQ2_XXS cannot be encoded.*Q4_K/, () => encode(iq2_xxs, values));
    refuses("unsupported", /type 99 cannot be encoded/, () => encode(99, values));
    refuses("unsupported", /IQ2_XXS cannot be decoded/, () => decode(iq2_xxs, new Uint8Array(132), 512));
  });

  it("is a row that ends within a block", () => {
    refuses("unsupported", /rows of 96 values cannot be Q4_K.*multiple of 256/, () => encode(q4_k, values, 96));
    refuses("unsupported", /rows of 0 values/, () => encode(f32, values, 0));
  });

  it("is a value that is not finite, which the error says", () => {
    for (const type of types) {
      for (const wrong of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]) {
        const damaged = values.slice();
        damaged[columns + 3] = wrong;
        const expected = new RegExp(`row 1, column 3 is ${wrong}; expected finite`);
        refuses("model_file_invalid", expected, () => encode(type, damaged));
      }
    }
  });

  it("is a value that the type's scale cannot reach", () => {
    const large = values.slice();
    large[5] = 1e6;
    refuses("model_file_invalid", /row 0, column 5 is 1000000; expected magnitudes up to 65504 for type F16/, () =>
      encode(f16, large),
    );
    refuses("model_file_invalid", /500000 for type Q4_0/, () => encode(q4_0, large));
    assert.ok(decode(bf16, encode(bf16, large), large.length).every(Number.isFinite));
  });

  it("is an importance that is negative, not finite, or of another length", () => {
    const importance = randomImportance(columns);
    importance[9] = -1;
    refuses("config_invalid", /column 9 is -1/, () => encode(q4_k, values, columns, importance));
    importance[9] = Number.NaN;
    refuses("config_invalid", /column 9 is NaN/, () => encode(q4_k, values, columns, importance));
    refuses("config_invalid", /each of 512 columns; got 5/, () => encode(q4_k, values, columns, new Float32Array(5)));
  });

  it("is a buffer of another size", () => {
    refuses("internal", /got 1024 floats and 10 bytes/, () =>
      codec.encodeRows(q8_0, values, columns, null, new Uint8Array(10)),
    );
  });
});
