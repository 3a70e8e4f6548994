// Kernel agreement: the SIMD kernel is compared with the plain kernel on difficult random rows. Greedy tokens and top
// lists must be equal. Random draws may differ in 0.1 % of the rows, because the kernels round probabilities differently.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { ReferenceKernel } from "../../../../engines/decoding/sampler/reference-kernel.ts";
import type { Filters } from "../../../../engines/decoding/sampler/row-kernel.ts";
import { createSimd, createUniform, normal } from "./fixtures.ts";

const vocabSizes = [1, 3, 4, 5, 16, 31, 127, 128, 129, 300, 1025, 6007];
/** Number of rows of each kind and size. Large sizes have fewer rows. */
const roundsOf = (vocabSize: number) => (vocabSize < 2000 ? 40 : 6);

/** Kinds of rows. Each function returns one random logit. */
const kinds: Readonly<Record<string, (uniform: () => number) => number>> = {
  normal: (uniform) => 3 * normal(uniform),
  flat: (uniform) => 0.01 * normal(uniform),
  equal: () => -1.25,
  tied: (uniform) => Math.round(2 * normal(uniform)),
  peaked: (uniform) => normal(uniform) + (uniform() < 0.01 ? 12 : 0),
  holes: (uniform) => (uniform() < 0.5 ? Number.NEGATIVE_INFINITY : uniform() < 0.1 ? Number.NaN : normal(uniform)),
  huge: (uniform) => 3e38 * (uniform() - 0.5),
  tiny: (uniform) => 1e-40 * normal(uniform),
  far: (uniform) => (uniform() < 0.1 ? 1000 : 0) + 40 * uniform(),
};

function randomFilters(uniform: () => number, vocabSize: number): Filters {
  return {
    temperature: [1, 0.7, 1.5, 0.01, 5][Math.floor(uniform() * 5)]!,
    topK: uniform() < 0.5 ? 0 : 1 + Math.floor(uniform() ** 3 * vocabSize),
    topP: uniform() < 0.5 ? 1 : uniform(),
    minP: uniform() < 0.7 ? 0 : uniform() ** 4,
  };
}

/** Returns a random 32-bit word of a mask. `density`: probability that a bit is set. Some words have all bits set, or none. */
function randomWord(uniform: () => number, density: number): number {
  if (uniform() < 0.3) return uniform() < 0.5 ? -1 : 0;
  let bits = 0;
  for (let bit = 0; bit < 32; bit++) if (uniform() < density) bits |= 1 << bit;
  return bits;
}

describe("the two kernels", () => {
  for (const [kind, logit] of Object.entries(kinds)) {
    it(`agree on ${kind} rows`, () => {
      const uniform = createUniform(kind.length * 7919);
      let draws = 0;
      let differences = 0;
      for (const vocabSize of vocabSizes) {
        const simd = createSimd(vocabSize);
        const reference = new ReferenceKernel(vocabSize);
        for (let round = 0; round < roundsOf(vocabSize); round++) {
          const row = Float32Array.from({ length: vocabSize }, () => logit(uniform));
          const filters = randomFilters(uniform, vocabSize);
          const u = uniform();
          simd.row.set(row);
          reference.row.set(row);
          assert.equal(simd.argmax(), reference.argmax());
          const count = reference.top(20);
          assert.equal(simd.top(20), count);
          assert.deepEqual(simd.topIds.subarray(0, count), reference.topIds.subarray(0, count));
          assert.deepEqual(simd.topLogits.subarray(0, count), reference.topLogits.subarray(0, count));
          const logSum = reference.logSum();
          if (count === 0) assert.equal(simd.logSum(), logSum);
          else assert(Math.abs(simd.logSum() - logSum) < 1e-5, `${simd.logSum()} is not ${logSum}`);
          draws++;
          if (simd.draw(filters, u) !== reference.draw(filters, u)) differences++;
          const density = uniform();
          const mask = reference.mask.map(() => randomWord(uniform, density));
          simd.mask.set(mask);
          reference.mask.set(mask);
          simd.restrict();
          reference.restrict();
          assert.deepEqual(simd.row, reference.row);
          assert.equal(simd.argmax(), reference.argmax());
        }
      }
      assert(differences <= draws * 0.001 + 1, `${differences} of ${draws} draws differ`);
    });
  }
});
