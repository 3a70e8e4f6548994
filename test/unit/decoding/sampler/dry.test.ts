// DRY penalty on handmade repetitions, and compared with its definition on random sequences.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { DRY_LOOK_BACK, DryPenalty } from "../../../../engines/decoding/sampler/dry.ts";
import type { Dry } from "../../../../engines/generation.ts";
import { createUniform } from "./fixtures.ts";

const dry: Dry = { multiplier: 1, base: 2, allowedLength: 2, sequenceBreakers: [] };

/** Returns the penalty on each possible next token after `tokens`, by token id. */
function penaltiesAfter(tokens: readonly number[], change: Partial<Dry> = {}, breakers: readonly number[] = []) {
  const penalty = new DryPenalty({ ...dry, ...change }, Int32Array.from(tokens), Int32Array.from(breakers));
  return read(penalty);
}

function read(penalty: DryPenalty): Record<number, number> {
  const row = new Float32Array(100);
  penalty.apply(row);
  return Object.fromEntries([...row.entries()].filter(([, logit]) => logit !== 0).map(([id, logit]) => [id, -logit]));
}

/** Returns for each earlier position how many tokens before it equal the end of the sequence, computed by the definition of DRY. */
function definition(tokens: readonly number[], breakers: readonly number[]): Record<number, number> {
  const longest: Record<number, number> = {};
  for (let next = 1; next < tokens.length; next++) {
    let length = 0;
    while (length < next) {
      const token = tokens[tokens.length - 1 - length]!;
      if (token !== tokens[next - 1 - length] || breakers.includes(token)) break;
      length++;
    }
    const token = tokens[next]!;
    if (length >= 2 && !breakers.includes(token)) longest[token] = Math.max(longest[token] ?? 0, length);
  }
  return Object.fromEntries(Object.entries(longest).map(([token, length]) => [token, 2 ** (length - 2)]));
}

describe("DRY", () => {
  it("penalises the token that would extend a repetition of the allowed length", () => {
    assert.deepEqual(penaltiesAfter([1, 2, 3, 9, 1, 2]), { 3: 1 });
    assert.deepEqual(penaltiesAfter([1, 2, 3, 9, 2]), {});
    assert.deepEqual(penaltiesAfter([]), {});
  });

  it("grows by the base with each repeated token more", () => {
    assert.deepEqual(penaltiesAfter([1, 2, 3, 4, 5, 9, 1, 2, 3, 4]), { 5: 4 });
    assert.deepEqual(penaltiesAfter([1, 2, 3, 4, 5, 9, 1, 2, 3, 4], { multiplier: 0.5, base: 3 }), { 5: 4.5 });
    assert.deepEqual(penaltiesAfter([1, 2, 3, 4, 5, 9, 1, 2, 3, 4], { allowedLength: 4 }), { 5: 1 });
    assert.deepEqual(penaltiesAfter([1, 2, 3, 4, 5, 9, 1, 2, 3, 4], { allowedLength: 5 }), {});
  });

  it("counts the longest of several repetitions, for each token that follows one", () => {
    assert.deepEqual(penaltiesAfter([1, 2, 3, 8, 7, 1, 2, 3, 9, 1, 2, 4, 7, 1, 2]), { 3: 2, 4: 1 });
  });

  it("finds repetitions that overlap themselves", () => {
    assert.deepEqual(penaltiesAfter([5, 5, 5, 5, 5]), { 5: 4 });
    assert.deepEqual(penaltiesAfter([1, 2, 1, 2, 1, 2]), { 1: 4 });
  });

  it("lets no repetition reach across a breaker, nor penalises one", () => {
    assert.deepEqual(penaltiesAfter([1, 0, 2, 3, 9, 1, 0, 2], {}, [0]), {});
    assert.deepEqual(penaltiesAfter([1, 0, 2, 3, 4, 9, 1, 0, 2, 3], {}, [0]), { 4: 1 });
    assert.deepEqual(penaltiesAfter([1, 2, 0, 9, 1, 2], {}, [0]), {});
  });

  it("needs at least one repeated token, even if the setting requires none", () => {
    assert.deepEqual(penaltiesAfter([1, 2, 3], { allowedLength: 0 }), {});
    assert.deepEqual(penaltiesAfter([1, 2, 1], { allowedLength: 0 }), { 2: 1 });
  });

  it("stays finite however long the repetition is", () => {
    const row = new Float32Array(10);
    new DryPenalty({ ...dry, base: 10 }, new Int32Array(3000).fill(5), new Int32Array(0)).apply(row);
    assert(Number.isFinite(row[5]) && row[5]! <= -1e8);
  });

  it("ignores what lies beyond the look-back, and keeps working", () => {
    const filler = Array.from({ length: DRY_LOOK_BACK }, (_, i) => 10 + (i % 80)).map((id, i) => (i % 2 ? id : 9));
    assert.deepEqual(penaltiesAfter([1, 2, 3, ...filler, 1, 2]), {});
    const penalty = new DryPenalty(dry, new Int32Array(0), new Int32Array(0));
    for (let round = 0; round < 3; round++) for (const token of filler) penalty.record(token);
    for (const token of [1, 2, 3, 4, 1, 2, 3]) penalty.record(token);
    assert.deepEqual(read(penalty), { 4: 2 });
  });

  it("equals its definition on random sequences, token by token", () => {
    const uniform = createUniform(5);
    for (let round = 0; round < 60; round++) {
      const kinds = 2 + Math.floor(uniform() * 4);
      const breakers = round % 2 ? [1] : [];
      const penalty = new DryPenalty(dry, new Int32Array(0), Int32Array.from(breakers));
      const tokens: number[] = [];
      for (let i = 0; i < 60; i++) {
        tokens.push(Math.floor(uniform() ** 2 * kinds));
        penalty.record(tokens.at(-1)!);
        const capped = Object.entries(definition(tokens, breakers)).map(([id, x]) => [id, Math.min(x, 1e9)]);
        assert.deepEqual(read(penalty), Object.fromEntries(capped));
      }
    }
  });
});
