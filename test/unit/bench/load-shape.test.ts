import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { PromptSource, shapeFor } from "../../../bench/serving/client/prompts.ts";
import { poissonArrivals, randomFrom } from "../../../bench/serving/client/random.ts";
import { mean, percentiles } from "../../../bench/serving/client/statistics.ts";

const shape = { wordCount: 12, sharedCount: 0, spread: 0 };
const texts = (source: PromptSource, count: number, of = shape) => source.round(count, of).map(({ text }) => text);
const beginning = (prompt: string, words: number) => prompt.split(" ").slice(0, words).join(" ");

describe("the prompts of a load", () => {
  it("are the same for the same seed, and others for another", () => {
    const prompts = (seed: number) => texts(new PromptSource(seed), 20);
    assert.deepEqual(prompts(1), prompts(1));
    assert.equal(new Set([...prompts(1), ...prompts(2)]).size, 40);
  });

  it("differ from all others of their run in their first three words, over rounds of any size", () => {
    const source = new PromptSource(7);
    const prompts = [1, 400, 32, 2000].flatMap((count) => texts(source, count));
    assert.equal(new Set(prompts.map((prompt) => beginning(prompt, 3))).size, prompts.length);
  });

  it("begin with another word than the prompts sent beside them", () => {
    const prompts = texts(new PromptSource(3), 64);
    assert.equal(new Set(prompts.map((prompt) => beginning(prompt, 1))).size, prompts.length);
  });

  it("have the requested number of words; shared ones are equal within a round and differ between rounds", () => {
    const source = new PromptSource(1);
    const shared = { wordCount: 30, sharedCount: 10, spread: 0 };
    const [first, second] = [texts(source, 8, shared), texts(source, 8, shared)];
    for (const prompt of [...first, ...second]) assert.equal(prompt.split(" ").length, 30);
    assert.equal(new Set(first.map((prompt) => beginning(prompt, 10))).size, 1);
    assert.equal(new Set(first.map((prompt) => beginning(prompt, 13))).size, 8);
    assert.notEqual(beginning(first[0]!, 10), beginning(second[0]!, 10));
  });

  it("vary in length, as do the responses, by the requested amount around the same mean", () => {
    const prompts = new PromptSource(5).round(400, { wordCount: 40, sharedCount: 0, spread: 0.5 });
    const words = prompts.map(({ text }) => text.split(" ").length);
    const shares = prompts.map(({ answerShare }) => answerShare);
    for (const [values, middle] of [
      [words, 40],
      [shares, 1],
    ] as const) {
      assert.ok(Math.min(...values) >= middle * 0.5 && Math.min(...values) < middle * 0.55);
      assert.ok(Math.max(...values) <= middle * 1.5 && Math.max(...values) > middle * 1.45);
      assert.ok(Math.abs(mean(values) / middle - 1) < 0.05);
    }
  });

  it("get their length from the token counts of two prompts", () => {
    const counted = [
      { words: 8, tokens: 38 },
      { words: 72, tokens: 102 },
    ] as const;
    assert.deepEqual(shapeFor({ promptTokens: 64, sharedTokens: 10, spread: 0.5 }, ...counted), {
      wordCount: 34,
      sharedCount: 10,
      spread: 0.5,
    });
    const twice = [
      { words: 10, tokens: 30 },
      { words: 20, tokens: 50 },
    ] as const;
    assert.deepEqual(shapeFor({ promptTokens: 130, sharedTokens: 40, spread: 0 }, ...twice), {
      wordCount: 60,
      sharedCount: 20,
      spread: 0,
    });
  });

  it("cannot be shorter than the chat template and what makes them unique", () => {
    const shape = (promptTokens: number, sharedTokens: number) =>
      shapeFor({ promptTokens, sharedTokens, spread: 0 }, { words: 8, tokens: 38 }, { words: 72, tokens: 102 });
    assert.equal(shape(33, 0).wordCount, 3);
    assert.throws(() => shape(32, 0), /chat template alone makes about 30 tokens/);
    assert.throws(() => shape(64, 32), /--shared-prefix 32/);
  });
});

describe("the arrivals of a load", () => {
  it("are the same for the same seeds only", () => {
    const arrivals = (...seeds: number[]) => poissonArrivals(5, 50, randomFrom(...seeds));
    assert.deepEqual(arrivals(1, 2), arrivals(1, 2));
    assert.notDeepEqual(arrivals(1, 2), arrivals(2, 1));
    assert.notDeepEqual(arrivals(1, 2), arrivals(1, 3));
  });

  it("are in order, at the requested rate, with random gaps", () => {
    const atMs = poissonArrivals(20, 20_000, randomFrom(1));
    const gaps = atMs.map((at, i) => at - (atMs[i - 1] ?? 0));
    assert.ok(gaps.every((gap) => gap >= 0));
    const average = mean(gaps);
    const deviation = Math.sqrt(mean(gaps.map((gap) => (gap - average) ** 2)));
    assert.ok(Math.abs(average - 50) < 2, `mean gap ${average} ms`);
    // The standard deviation of an exponential distribution equals its mean.
    assert.ok(Math.abs(deviation - 50) < 3, `deviation ${deviation} ms`);
  });

  it("use random numbers that fill [0, 1) evenly", () => {
    const random = randomFrom(9);
    const tenths = new Array<number>(10).fill(0);
    for (let i = 0; i < 20_000; i++) tenths[Math.floor(random() * 10)]!++;
    for (const count of tenths) assert.ok(Math.abs(count - 2000) < 200, `${count} of 20,000 in a tenth`);
  });
});

describe("percentiles", () => {
  it("interpolate between neighbours, in any order of the values", () => {
    const values = Array.from({ length: 101 }, (_, i) => 100 - i);
    assert.deepEqual(percentiles(values), { p50: 50, p90: 90, p99: 99 });
    assert.deepEqual(percentiles([20, 10]), { p50: 15, p90: 19, p99: 19.9 });
  });

  it("lie within the values and rise", () => {
    fc.assert(
      fc.property(fc.array(fc.double({ noNaN: true, min: -1e6, max: 1e6 }), { minLength: 1 }), (values) => {
        const { p50, p90, p99 } = percentiles(values);
        assert.ok(Math.min(...values) <= p50 && p50 <= p90 && p90 <= p99 && p99 <= Math.max(...values));
      }),
    );
  });

  it("of no values are NaN", () => {
    assert.ok(Number.isNaN(percentiles([]).p50));
  });
});
