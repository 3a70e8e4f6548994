import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import fc from "fast-check";
import { HeldLogprobs } from "../../../../../actors/generation/output/held-logprobs.ts";

interface Held {
  readonly start: number;
  readonly end: number;
  readonly record: readonly number[];
}

type Step =
  | { readonly kind: "add"; readonly length: number; readonly top: readonly (readonly [number, number])[] }
  | { readonly kind: "take" | "drop" | "dropBefore"; readonly share: number };

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant("add" as const),
      length: fc.nat(3),
      top: fc.array(fc.tuple(fc.nat(100_000), fc.integer({ min: -50, max: 0 })), { maxLength: 20 }),
    }),
  },
  fc.record({
    kind: fc.constantFrom("take" as const, "drop" as const, "dropBefore" as const),
    share: fc.double({ min: 0, max: 1, noNaN: true }),
  }),
);

describe("logprobs that wait for their text", () => {
  it("leave in the order they came, whatever is taken and dropped", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const held = new HeldLogprobs();
        let expected: Held[] = [];
        let [characters, token] = [0, 0];
        for (const one of steps) {
          if (one.kind === "add") {
            const [start, end] = [characters, characters + one.length];
            characters = end;
            token++;
            const frame = [-token, one.top.length, ...one.top.flat()];
            held.add(start, end, token, Float32Array.from([9, 9, ...frame]), 2);
            expected.push({ start, end, record: [token, ...frame] });
            continue;
          }
          const count = Math.round(one.share * expected.length);
          if (one.kind === "take") {
            const floats = expected.slice(0, count).flatMap(({ record }) => record);
            assert.deepEqual(held.take(count), { count, floats: Float32Array.from(floats) });
            expected = expected.slice(count);
          } else if (one.kind === "drop") {
            held.drop(count);
            expected = expected.slice(count);
          } else {
            const at = Math.round(one.share * characters);
            held.dropBefore(at);
            const first = expected.findIndex(({ start, end }) => end > at || start >= at);
            expected = first < 0 ? [] : expected.slice(first);
            const next = expected.findIndex(({ start }) => start >= at + 2);
            assert.equal(held.countBefore(at + 2), next < 0 ? expected.length : next);
          }
          assert.equal(held.count, expected.length);
        }
      }),
    );
  });

  it("take no more memory for longer texts whose last tokens always wait", () => {
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    const held = new HeldLogprobs();
    const frame = Float32Array.of(-1, 20, ...new Array<number>(40).fill(0));
    const pass = (count: number): number => {
      for (let i = 0; i < count; i++) {
        held.add(i, i + 1, i, frame, 0);
        if (held.count > 5) held.take(1);
      }
      collect();
      return process.memoryUsage().arrayBuffers;
    };
    const before = pass(100);
    assert.ok(pass(50_000) - before < 2 ** 20);
    assert.equal(held.count, 5);
  });
});
