import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
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

const small = { heads: 4, kvHeads: 2, headLength: 20, blockTokens: 12 };
/** Address beyond any test memory. */
const nowhere = 0x7fff_0000;

const span = fc.oneof(fc.integer({ min: 0, max: 45 }), fc.constantFrom(0, 11, 12, 31, 32, all - 1, all));
const anyArguments = fc.record({
  shape: fc.constantFrom(small, { ...small, blockTokens: 64 }, { ...small, kvHeads: 4, blockTokens: 32 }),
  n: fc.integer({ min: 1, max: 40 }),
  before: fc.integer({ min: 0, max: 70 }),
  view: fc.record({
    behind: span,
    ahead: span,
    softcap: fc.constantFrom(0, 0, 1.5, 50),
    slope: fc.constantFrom(0, 0, 0.03, 0.5),
    scale: fc.constantFrom(0.1, 0.2),
  }),
});

function describeCase({ n, before, view, shape }: Case): string {
  return `${n} rows behind ${before}, blocks of ${shape.blockTokens}, ${JSON.stringify(view)}`;
}

function withExpected(cases: readonly Case[]): readonly (readonly [Case, Float64Array])[] {
  return cases.map((one) => [one, attendPlainly(one)]);
}

const aboutBorders = withExpected(
  [1, 5, 40].flatMap((n) => [0, 30, 31, 32, 33].map((behind) => createCase(smollm, n, 64, { behind }))),
);
const seeingAll = withExpected([1, 2, 33, 70].map((n) => createCase(smollm, n, 0, { ahead: all })));
const symmetric = withExpected(
  [1, 16, 64, 200].map((reach) => createCase(smollm, 70, 0, { behind: reach, ahead: reach })),
);

for (const variant of variants) {
  const rig = await createAttentionRig(variant);

  const check = (type: Type, one: Case, parts: number, expected = attendPlainly(one)) => {
    rig.reset();
    const error = largestError(rig.attend(type, one, parts), expected);
    assert.ok(error <= tolerance[type], `${describeCase(one)}, ${type} in ${parts} parts: off by ${error}`);
  };

  describe(`the ${variant} attention kernels' windows`, () => {
    it("agree with a plain softmax, for any window and cap", () => {
      const property = fc.property(
        fc.constantFrom(...typeNames),
        anyArguments,
        fc.integer({ min: 1, max: 3 }),
        (type, { shape, n, before, view }, parts) => check(type, createCase(shape, n, before, view), parts),
      );
      fc.assert(property, { numRuns: 120, seed: 8 });
    });

    for (const type of typeNames) {
      it(`may begin and end anywhere around the border of a page, with ${type} pages`, () => {
        for (const [one, expected] of aboutBorders) check(type, one, 2, expected);
      });

      it(`let all tokens see each other, with ${type} pages`, () => {
        for (const [one, expected] of seeingAll) check(type, one, 2, expected);
      });

      it(`reach as far ahead as behind, and not beyond the last token, with ${type} pages`, () => {
        for (const [one, expected] of symmetric) check(type, one, 1, expected);
      });
    }

    it("of one token return that token's values", () => {
      rig.reset();
      const one = createCase({ ...smollm, heads: 3 }, 50, 40, { behind: 0 });
      const got = rig.attend("F32", one, 2);
      const width = 3 * smollm.headLength;
      for (const [i, value] of got.entries()) {
        assert.ok(Math.abs(value - one.values[40 * width + i]!) < 1e-6, `float ${i} is ${value}`);
      }
    });

    it("leave pages unread that no token sees", () => {
      rig.reset();
      const { heads, kvHeads, headLength, blockTokens } = small;
      // The first query is at position 200 and sees 79 positions before it. The earliest, 121, is the second position of its page.
      const [n, before, behind] = [40, 200, 79];
      const queries = rig.place(new Float32Array(n * heads * headLength));
      const ones = rig.place(new Float32Array(kvHeads * headLength).fill(1));
      const list: number[] = [];
      for (let first = 0; first < before + n + 2 * blockTokens; first += blockTokens) {
        const isSeen = first + blockTokens > before - behind && first < before + n;
        const page = isSeen
          ? rig.reserve(rig.kernels.kvPageBytes(types.F16, kvHeads, headLength, blockTokens))
          : nowhere;
        list.push(page, first);
        for (let i = 0; isSeen && i < blockTokens; i++) {
          rig.kernels.kvWrite(types.F16, page, i, blockTokens, ones, ones, kvHeads, headLength);
        }
      }
      const out = rig.reserve(n * heads * (headLength + tail) * floatBytes);
      const attend = (behind: number) => {
        // biome-ignore format: one call
        rig.kernels.attend(
          types.F16, rig.place(Int32Array.from(list)), list.length / 2, blockTokens, queries, heads * headLength, n, before,
          heads, kvHeads, headLength, 1, 0, behind, all, out, 0,
        );
      };
      attend(behind);
      // The first row sees the 79 tokens before it, itself and the next 39, all with the same weight.
      assert.equal(rig.floats(out, headLength + 2)[headLength + 1], behind + n);
      assert.throws(() => attend(before), /out of bounds/, "reading them would have been noticed");
    });

    it("report that a row has seen nothing if a part's pages end before its window", () => {
      rig.reset();
      const { heads, kvHeads, headLength, blockTokens } = small;
      const query = rig.place(new Float32Array(2 * heads * headLength).fill(1));
      const page = rig.reserve(rig.kernels.kvPageBytes(types.F32, kvHeads, headLength, blockTokens));
      const token = rig.place(new Float32Array(kvHeads * headLength).fill(1));
      for (let i = 0; i < blockTokens; i++) {
        rig.kernels.kvWrite(types.F32, page, i, blockTokens, token, token, kvHeads, headLength);
      }
      const record = headLength + tail;
      const out = rig.reserve(2 * heads * record * floatBytes);
      // The rows are the two tokens after the page; each sees one token before itself.
      // biome-ignore format: one call
      rig.kernels.attend(
        types.F32, rig.place(Int32Array.of(page, 0)), 1, blockTokens, query, heads * headLength, 2, blockTokens,
        heads, kvHeads, headLength, 1, 0, 1, 0, out, 0,
      );
      for (let i = 0; i < 2 * heads; i++) {
        const got = rig.floats(out + i * record * floatBytes, headLength + 2);
        const expected = new Float32Array(headLength + 2).fill(i < heads ? 1 : 0);
        expected[headLength] = i < heads ? headLength : nothing;
        assert.deepEqual(got, expected, `head ${i}`);
      }
    });

    it("keep scores below the cap, however large they were", () => {
      rig.reset();
      const one = createCase(smollm, 9, 60, { softcap: 30 }, 1e6);
      const error = largestError(rig.attend("F32", one, 2), attendPlainly(one));
      assert.ok(error <= 1e-4, `off by ${error}`);
    });
  });
}
