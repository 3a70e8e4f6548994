import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { longestRun, shortestRun, TokenIndex } from "../../../../engines/decoding/speculation/token-index.ts";

/** Reference implementation of add(): a slow search that compares with every earlier position. */
function search(tokens: Int32Array, end: number): number {
  for (let run = Math.min(longestRun, end); run >= shortestRun; run--) {
    const wanted = tokens.subarray(end - run, end).join();
    for (let earlier = end - 1; earlier >= run; earlier--) {
      if (tokens.subarray(earlier - run, earlier).join() === wanted) return earlier;
    }
  }
  return 0;
}

describe("the index of a sequence's tokens", () => {
  it("finds the latest earlier occurrence of the longest match, as a search of all positions does", () => {
    const texts = fc.array(fc.integer({ min: 0, max: 5 }), { maxLength: 300 });
    fc.assert(
      fc.property(texts, (text) => {
        const tokens = Int32Array.from(text);
        const index = new TokenIndex(tokens, 0);
        for (let end = 1; end <= tokens.length; end++) assert.equal(index.add(), search(tokens, end), `at ${end}`);
      }),
      { numRuns: 60 },
    );
  });

  it("keeps its entries when it grows", () => {
    const half = Array.from({ length: 3000 }, (_, i) => i * 7);
    const tokens = Int32Array.from([...half, ...half]);
    const index = new TokenIndex(tokens, 0);
    const found = half.concat(half).map(() => index.add());
    assert.ok(found.slice(0, 3000).every((at) => at === 0));
    assert.deepEqual(
      found.slice(3001),
      half.slice(1).map((_, i) => i + 2),
    );
  });
});
