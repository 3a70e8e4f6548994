import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { AdapterArena } from "../../../../engines/wasm/adapters/arena.ts";

const [from, to] = [4096, 4096 + 10_000];

describe("the adapter arena", () => {
  it("allocates without overlaps and frees everything, in any order", () => {
    /** Random action: `take` = number of bytes to allocate; `give` = index of a block to free. */
    const action = fc.oneof(
      fc.record({ take: fc.integer({ min: 1, max: 3000 }) }),
      fc.record({ give: fc.nat({ max: 20 }) }),
    );
    fc.assert(
      fc.property(fc.array(action, { maxLength: 60 }), (actions) => {
        const arena = new AdapterArena(from, to);
        const held: { readonly at: number; readonly bytes: number }[] = [];
        for (const next of actions) {
          if ("take" in next) {
            const longest = arena.longestFree;
            const at = arena.take(next.take);
            assert.equal(at === null, next.take > longest);
            if (at === null) continue;
            assert.ok(at >= from && at + next.take <= to);
            assert.ok(held.every((other) => other.at + other.bytes <= at || other.at >= at + next.take));
            held.push({ at, bytes: next.take });
          } else {
            const [block] = held.splice(next.give % Math.max(held.length, 1), 1);
            if (block) arena.give(block.at, block.bytes);
          }
          arena.checkIntegrity();
          assert.equal(
            arena.usedBytes,
            held.reduce((sum, { bytes }) => sum + bytes, 0),
          );
        }
        for (const { at, bytes } of held) arena.give(at, bytes);
        assert.equal(arena.longestFree, to - from);
        assert.equal(arena.usedBytes, 0);
      }),
    );
  });

  it("is empty if the model uses the whole memory", () => {
    const arena = new AdapterArena(to, to);
    assert.equal(arena.take(1), null);
    arena.checkIntegrity();
  });
});
