import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  all,
  attendPlainly,
  type Case,
  createAttentionRig,
  createCase,
  floatBytes,
  largestError,
  nothing,
  smollm,
  type Type,
  tail,
  tolerance,
  typeNames,
  types,
} from "./attention-fixtures.ts";
import { variants } from "./kernel-fixtures.ts";

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
  ...[32, 48, 112, 192].map((headLength) => ({ heads: 2, kvHeads: 1, headLength, blockTokens: 32 })),
].flatMap((shape) => [createCase(shape, 1, 70), createCase(shape, 6, 50)]);

function expectedOf(cases: readonly Case[]): readonly (readonly [Case, Float64Array])[] {
  return cases.map((one) => [one, attendPlainly(one)]);
}

const expectedOfLengths = expectedOf(lengths);
const expectedOfShapes = expectedOf(shapes);

for (const variant of variants) {
  const rig = await createAttentionRig(variant);

  describe(`the ${variant} attention kernels`, () => {
    for (const type of typeNames) {
      it(`agree with a plain softmax for any number of rows and tokens, with ${type} pages in 1 to 3 parts`, () => {
        for (const [at, [one, expected]] of expectedOfLengths.entries()) {
          rig.reset();
          const got = rig.attend(type, one, (at % 3) + 1);
          const error = largestError(got, expected);
          assert.ok(error <= tolerance[type], `${one.n} rows behind ${one.before} tokens: off by ${error}`);
        }
      });

      it(`agree with it for any shape of heads and blocks, with ${type} pages`, () => {
        for (const [one, expected] of expectedOfShapes) {
          rig.reset();
          const error = largestError(rig.attend(type, one, 2), expected);
          assert.ok(error <= tolerance[type], `${JSON.stringify(one.shape)}, ${one.n} rows: off by ${error}`);
        }
      });

      it(`handle scores so large and far apart that one token takes all weight, with ${type} pages`, () => {
        rig.reset();
        const one = createCase(smollm, 3, 60, { scale: 1 }, 1e6);
        const error = largestError(rig.attend(type, one, 2), attendPlainly(one));
        // Rounded keys may move the highest score to another token, so the test requires only that nothing overflows.
        assert.ok(type === "F32" ? error <= 1e-5 : error <= 2, `off by ${error}`);
      });
    }

    it("report that a row has seen nothing if a part has no page, or only pages of later tokens", () => {
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
          types.BF16, list, pages, blockTokens, query, heads * headLength, 2, 31, heads, kvHeads, headLength, 1, 0, all,
          0, out, 0,
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

    it("round to the nearest 16-bit float, ties to even", () => {
      /** Stores a value and reads it back through attention. There is only one token, so its attention weight is 1. */
      const stored = (type: Type, value: number) => {
        rig.reset();
        const one = createCase({ heads: 1, kvHeads: 1, headLength: 4, blockTokens: 4 }, 1, 0);
        return rig.attend(type, { ...one, values: new Float32Array(4).fill(value) }, 1)[3];
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
