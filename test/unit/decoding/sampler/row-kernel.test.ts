// Row kernels: both kernels on rows with hand-computed results, for each filter.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Filters, RowKernel } from "../../../../engines/decoding/sampler/row-kernel.ts";
import { createUniform, kernels, logitsOf, maskOf, normal } from "./fixtures.ts";

const off: Filters = { temperature: 1, topK: 0, topP: 1, minP: 0 };
const { NaN: nan, POSITIVE_INFINITY: infinity } = Number;

for (const { name, create } of kernels) {
  const kernelOf = (logits: ArrayLike<number>): RowKernel => {
    const kernel = create(logits.length);
    kernel.row.set(logits);
    return kernel;
  };
  /** Draws with 100 evenly spaced random numbers. Returns how often each token is drawn. */
  const shares = (logits: Float32Array, filters: Partial<Filters>): Record<number, number> => {
    const kernel = kernelOf(logits);
    const count: Record<number, number> = {};
    let previous = -1;
    for (let i = 0; i < 100; i++) {
      const token = kernel.draw({ ...off, ...filters }, (i + 0.5) / 100);
      assert(token >= previous, "tokens lie in id order");
      previous = token;
      count[token] = (count[token] ?? 0) + 1;
    }
    return count;
  };

  describe(name, () => {
    it("chooses the largest logit, and the lowest id among equals", () => {
      assert.equal(kernelOf([1, 5, 3]).argmax(), 1);
      assert.equal(kernelOf([1, 5, 3, 5, 5]).argmax(), 1);
      assert.equal(kernelOf([-7]).argmax(), 0);
      assert.equal(kernelOf([-0, 0]).argmax(), 0);
      const wide = new Float32Array(1000).fill(-4);
      for (const id of [130, 131, 999]) {
        wide[id] = -3;
        assert.equal(kernelOf(wide).argmax(), 130);
      }
    });

    it("never chooses NaN or -inf, and always +inf", () => {
      assert.equal(kernelOf([nan, -infinity, -1e38, nan]).argmax(), 2);
      assert.equal(kernelOf([nan, 1, infinity, infinity]).argmax(), 2);
      assert.deepEqual(shares(new Float32Array([nan, -infinity, 2, nan, 2]), {}), { 2: 50, 4: 50 });
      assert.deepEqual(shares(new Float32Array([nan, 1, infinity, infinity]), {}), { 2: 100 });
    });

    it("returns -1 if nothing can be chosen", () => {
      for (const logits of [[nan, nan], [-infinity, nan, -infinity], [-infinity]]) {
        assert.equal(kernelOf(logits).argmax(), -1);
        for (const filters of [off, { ...off, topK: 1 }, { ...off, topP: 0.5 }, { ...off, minP: 0.5 }]) {
          assert.equal(kernelOf(logits).draw(filters, 0.5), -1);
        }
        assert.equal(kernelOf(logits).logSum(), -infinity);
        assert.equal(kernelOf(logits).top(3), 0);
      }
    });

    it("draws each token with its probability, in id order", () => {
      assert.deepEqual(shares(logitsOf(0.1, 0.2, 0.3, 0.4), {}), { 0: 10, 1: 20, 2: 30, 3: 40 });
      assert.deepEqual(shares(logitsOf(0.25, 0.25, 0.25, 0.25), {}), { 0: 25, 1: 25, 2: 25, 3: 25 });
    });

    it("sets tokens outside the mask to -inf, and leaves the others alone", () => {
      const vocabSize = 300;
      const kernel = kernelOf(Float32Array.from({ length: vocabSize }, (_, id) => id - 150));
      const allowed = [0, 3, 4, 31, 32, 63, 127, 128, 255, 256, 299];
      kernel.mask.set(maskOf(vocabSize, allowed));
      kernel.restrict();
      const left = [...kernel.row.entries()].filter(([, logit]) => logit > -infinity);
      assert.deepEqual(
        left,
        allowed.map((id) => [id, id - 150]),
      );
      const odd = kernelOf([infinity, nan, 1]);
      odd.mask.set(maskOf(3, [1, 2]));
      odd.restrict();
      assert.equal(odd.argmax(), 2);
    });

    it("sharpens below temperature 1 and flattens above", () => {
      // The squares of the probabilities are in the ratio 1 : 4 : 9 : 16.
      assert.deepEqual(shares(logitsOf(0.1, 0.2, 0.3, 0.4), { temperature: 0.5 }), { 0: 3, 1: 14, 2: 30, 3: 53 });
      // The square roots of the probabilities are in the ratio 1 : 3.
      assert.deepEqual(shares(logitsOf(0.1, 0.9), { temperature: 2 }), { 0: 25, 1: 75 });
    });

    it("top-k keeps the k likeliest, lower ids among equals", () => {
      assert.deepEqual(shares(logitsOf(0.3, 0.1, 0.3, 0.3), { topK: 1 }), { 0: 100 });
      assert.deepEqual(shares(logitsOf(0.3, 0.1, 0.3, 0.3), { topK: 2 }), { 0: 50, 2: 50 });
      assert.deepEqual(shares(logitsOf(0.1, 0.1, 0.6, 0.2), { topK: 2 }), { 2: 75, 3: 25 });
    });

    it("top-p keeps the smallest set that reaches p, lower ids among equals", () => {
      assert.deepEqual(shares(logitsOf(0.05, 0.5, 0.25, 0.2), { topP: 0.6 }), { 1: 67, 2: 33 });
      assert.deepEqual(shares(logitsOf(0.05, 0.5, 0.25, 0.2), { topP: 0.8 }), { 1: 53, 2: 26, 3: 21 });
      assert.deepEqual(shares(logitsOf(0.25, 0.25, 0.25, 0.25), { topP: 0.4 }), { 0: 50, 1: 50 });
      assert.deepEqual(shares(logitsOf(0.2, 0.5, 0.3), { topP: 0 }), { 1: 100 });
    });

    it("top-p keeps the lower ids if all logits are equal", () => {
      const flat = new Float32Array(10_000).fill(2.5);
      const kernel = kernelOf(flat);
      assert.equal(kernel.draw({ ...off, topP: 0.499_95 }, 0.999_999), 4999);
      assert.equal(kernel.draw({ ...off, topP: 0.499_95 }, 0.5), 2500);
      assert.deepEqual(kernel.row, flat, "a draw leaves the row alone");
    });

    it("min-p keeps tokens that are likely enough compared with the likeliest", () => {
      assert.deepEqual(shares(logitsOf(0.4, 0.1, 0.3, 0.2), { minP: 0.6 }), { 0: 57, 2: 43 });
      assert.deepEqual(shares(logitsOf(0.4, 0.1, 0.3, 0.2), { minP: 0.4 }), { 0: 44, 2: 34, 3: 22 });
      assert.deepEqual(shares(logitsOf(0.2, 0.4, 0.4), { minP: 1 }), { 1: 50, 2: 50 });
    });

    it("applies top-k, then top-p to what is left, then min-p", () => {
      const logits = logitsOf(0.1, 0.4, 0.3, 0.2);
      assert.deepEqual(shares(logits, { topP: 0.5 }), { 1: 57, 2: 43 });
      // Top-k leaves two tokens, and the first of them has a probability of 0.57.
      assert.deepEqual(shares(logits, { topK: 2, topP: 0.5 }), { 1: 100 });
      assert.deepEqual(shares(logits, { topK: 3, minP: 0.7 }), { 1: 57, 2: 43 });
      assert.deepEqual(shares(logits, { topP: 0.85, minP: 0.7 }), { 1: 57, 2: 43 });
      assert.deepEqual(shares(logits, { topP: 0.5, minP: 0.1 }), { 1: 57, 2: 43 });
    });

    it("applies the temperature before the filters", () => {
      const logits = logitsOf(0.1, 0.4, 0.3, 0.2);
      // At temperature 0.5 the most likely token has a probability of 0.53, and the second token 0.56 times as much.
      assert.deepEqual(shares(logits, { temperature: 0.5, topP: 0.5 }), { 1: 100 });
      assert.deepEqual(shares(logits, { temperature: 0.5, minP: 0.6 }), { 1: 100 });
    });

    it("keeps everything at a top-p that rounds to all", () => {
      const uniform = createUniform(17);
      const nearlyAll = 1 - 2 ** -53;
      for (let round = 0; round < 20; round++) {
        const kernel = kernelOf(Float32Array.from({ length: 600 }, () => 2 * normal(uniform)));
        for (let u = 0.005; u < 1; u += 0.09) {
          const token = kernel.draw(off, u);
          assert.equal(kernel.draw({ ...off, topP: nearlyAll }, u), token);
          assert.equal(kernel.draw({ ...off, topP: nearlyAll, topK: 600 }, u), token);
        }
        // A thousand tokens whose probability sum depends on the order of addition.
        const steep = kernelOf(Float32Array.from({ length: 1000 }, (_, id) => (id === 500 ? 0 : -20 - uniform())));
        const u = 400 * Math.exp(-20.5);
        assert.equal(steep.draw({ ...off, topP: nearlyAll, topK: 1000 }, u), steep.draw(off, u));
      }
    });

    it("never chooses -inf for random numbers at the ends of the range", () => {
      const uniform = createUniform(23);
      for (let round = 0; round < 50; round++) {
        const row = Float32Array.from({ length: 128 }, (_, id) => (id < 20 || id > 99 ? -infinity : normal(uniform)));
        for (const filters of [off, { ...off, topP: 0.99 }, { ...off, topK: 70 }, { ...off, minP: 0.001 }]) {
          for (const u of [0, 1 - 2 ** -53]) assert(Number.isFinite(row[kernelOf(row).draw(filters, u)]));
        }
      }
    });

    it("sums exponentials with an error of at most 1e-6, also far below the peak", () => {
      for (let x = 0; x > -30; x -= 0.037) {
        const kernel = kernelOf([0, x]);
        const seen = Math.expm1(kernel.logSum());
        const logit = kernel.row[1]!;
        assert(Math.abs(seen - Math.exp(logit)) < 1e-6, `exp(${logit}) came out as ${seen}`);
      }
      assert.equal(kernelOf([700, -infinity, nan]).logSum(), 700);
      assert(Math.abs(kernelOf(new Float32Array(1000)).logSum() - Math.log(1000)) < 1e-6);
      assert.equal(kernelOf([0, infinity]).logSum(), infinity);
    });

    it("lists the likeliest tokens in order, lower ids first among equals", () => {
      const kernel = kernelOf([1, 9, -2, 9, nan, 4, -infinity]);
      assert.equal(kernel.top(4), 4);
      assert.deepEqual([...kernel.topIds.subarray(0, 4)], [1, 3, 5, 0]);
      assert.deepEqual([...kernel.topLogits.subarray(0, 4)], [9, 9, 4, 1]);
      assert.equal(kernel.top(20), 5);
      assert.equal(kernel.topIds[4], 2);
      const split = kernelOf([-0, 0, -1, 0]);
      split.top(3);
      assert.deepEqual([...split.topIds.subarray(0, 3)], [0, 1, 3]);
    });
  });
}
