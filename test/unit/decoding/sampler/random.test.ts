// Random number generator of the sampler: it is uniform, and a seed gives the same numbers in every release.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Random } from "../../../../engines/decoding/sampler/random.ts";

const numbers = (seed: bigint, count: number): number[] => {
  const random = new Random(seed);
  return Array.from({ length: count }, () => random.next());
};

describe("Random", () => {
  it("repeats for the same seed and differs between adjacent seeds", () => {
    assert.deepEqual(numbers(7n, 20), numbers(7n, 20));
    const firsts = new Set(Array.from({ length: 1000 }, (_, seed) => numbers(BigInt(seed - 500), 1)[0]));
    assert.equal(firsts.size, 1000);
  });

  it("uses 64 bits of the seed", () => {
    assert.deepEqual(numbers(2n ** 64n + 5n, 3), numbers(5n, 3));
    assert.notDeepEqual(numbers(2n ** 63n + 5n, 3), numbers(5n, 3));
  });

  it("is uniform over 0 <= u < 1, within a seed and across seeds", () => {
    const across = Array.from({ length: 64_000 }, (_, seed) => numbers(BigInt(seed), 1)[0]!);
    for (const sample of [numbers(3n, 64_000), across]) {
      const bins = new Array<number>(64).fill(0);
      for (const u of sample) {
        assert(u >= 0 && u < 1);
        bins[Math.floor(u * 64)]!++;
      }
      const chiSquare = bins.reduce((all, seen) => all + (seen - 1000) ** 2 / 1000, 0);
      assert(chiSquare < 110, `chi-square ${chiSquare} with 63 degrees of freedom`); // The p-value of 110 is 0.0002.
    }
  });
});
