import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { ExpertRouting } from "../../../engines/wasm/pass/expert-routing.ts";

/** Returns the routing of each token: pairs [expert, weight], sorted by expert. */
function perToken(routing: ExpertRouting, tokens: number): [number, number][][] {
  const found: [number, number][][] = Array.from({ length: tokens }, () => []);
  for (const expert of routing.taken.subarray(0, routing.takenCount)) {
    const from = routing.firstRowOf(expert);
    for (let row = from; row < from + routing.rowCountOf(expert); row++) {
      found[routing.rowToken[row]!]!.push([expert, routing.rowWeight[row]!]);
    }
  }
  return found;
}

function route(logits: readonly (readonly number[])[], used: number, normalised = true): [number, number][][] {
  const count = logits[0]!.length;
  const routing = new ExpertRouting({ count, used, tokens: logits.length });
  routing.route(Float32Array.from([0, 0, ...logits.flat()]), 2, logits.length, normalised);
  return perToken(routing, logits.length);
}

const expertsOf = (rows: [number, number][]) => rows.map(([expert]) => expert);

describe("routing tokens to experts", () => {
  it("takes the largest logits of each token, and the first of equal ones", () => {
    assert.deepEqual(
      route(
        [
          [1, 5, 3, 4],
          [2, 2, 2, 2],
          [-1, 7, 7, 7],
        ],
        2,
      ).map(expertsOf),
      [
        [1, 3],
        [0, 1],
        [1, 2],
      ],
    );
  });

  it("weighs by the softmax over the chosen experts, or over all", () => {
    const [odds1, odds2, odds3] = [1, 2, 5];
    const logits = [odds1, odds2, odds3].map(Math.log);
    const close = ([, weight]: [number, number], expected: number) => assert.ok(Math.abs(weight - expected) < 1e-6);
    const [ofTaken] = route([logits], 2);
    close(ofTaken![0]!, 2 / 7);
    close(ofTaken![1]!, 5 / 7);
    const [ofAll] = route([logits], 2, false);
    close(ofAll![0]!, 2 / 8);
    close(ofAll![1]!, 5 / 8);
  });

  it("sorts the rows by expert, then by token, and lists only chosen experts", () => {
    const routing = new ExpertRouting({ count: 4, used: 1, tokens: 8 });
    const picks = [3, 1, 3, 3, 1];
    const logits = picks.flatMap((pick) => [0, 1, 2, 3].map((expert) => (expert === pick ? 9 : 0)));
    routing.route(Float32Array.from(logits), 0, picks.length, true);
    assert.deepEqual([...routing.taken.subarray(0, routing.takenCount)], [1, 3]);
    assert.deepEqual([...routing.rowToken.subarray(0, picks.length)], [1, 4, 0, 2, 3]);
    assert.deepEqual(
      [0, 1, 2, 3].map((expert) => routing.rowCountOf(expert)),
      [0, 2, 0, 3],
    );
  });

  it("gives every token distinct experts whose weights add up, for any logits", () => {
    const logit = fc.oneof(fc.integer({ min: -3, max: 3 }), fc.float({ min: -1000, max: 1000, noNaN: true }));
    const cases = fc
      .record({ count: fc.integer({ min: 1, max: 40 }), tokens: fc.integer({ min: 1, max: 9 }) })
      .chain(({ count, tokens }) =>
        fc.record({
          used: fc.integer({ min: 1, max: count }),
          logits: fc.array(fc.array(logit, { minLength: count, maxLength: count }), {
            minLength: tokens,
            maxLength: tokens,
          }),
        }),
      );
    fc.assert(
      fc.property(cases, ({ used, logits }) => {
        for (const [token, rows] of route(logits, used).entries()) {
          const own = logits[token]!;
          const byLogit = own.map((_, expert) => expert).sort((a, b) => Math.fround(own[b]!) - Math.fround(own[a]!));
          assert.deepEqual(
            expertsOf(rows),
            byLogit.slice(0, used).sort((a, b) => a - b),
          );
          assert.ok(Math.abs(rows.reduce((sum, [, weight]) => sum + weight, 0) - 1) < 1e-5);
        }
      }),
    );
  });

  it("gives a token the same in a batch as alone", () => {
    const logits = Array.from({ length: 20 }, (_, token) =>
      Array.from({ length: 9 }, (_, e) => Math.sin(token * 9 + e)),
    );
    const together = route(logits, 3);
    for (const [token, own] of logits.entries()) assert.deepEqual(route([own], 3)[0], together[token]);
  });

  it("chooses existing experts if logits are NaN", () => {
    for (const bad of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]) {
      for (const logits of [
        [bad, bad, bad, bad],
        [1, bad, 0, bad],
        [bad, 0, 1, 2],
      ]) {
        const [rows] = route([logits], 3);
        assert.equal(new Set(expertsOf(rows!)).size, 3);
      }
    }
    assert.deepEqual(expertsOf(route([[Number.NaN, 0, Number.NaN, -5]], 2)[0]!), [1, 3]);
  });

  it("keeps no state between passes", () => {
    const routing = new ExpertRouting({ count: 3, used: 1, tokens: 4 });
    routing.route(Float32Array.from([9, 0, 0, 9, 0, 0, 9, 0, 0]), 0, 3, true);
    routing.route(Float32Array.from([0, 0, 9]), 0, 1, true);
    assert.deepEqual(perToken(routing, 1), [[[2, 1]]]);
    assert.deepEqual(
      [0, 1, 2].map((expert) => routing.rowCountOf(expert)),
      [0, 0, 1],
    );
  });
});
