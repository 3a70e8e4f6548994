import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { LogprobList, type LogprobRecords, recordLength } from "../../../../engines/logprobs.ts";

/** Random logprob records, each with some alternatives. */
const records = fc
  .array(fc.array(fc.tuple(fc.nat(2 ** 24 - 1), fc.float()), { minLength: 1, maxLength: 21 }), { maxLength: 20 })
  .map((tokens): LogprobRecords => {
    const floats = tokens.flatMap(([own, ...top]) => [...own!, top.length, ...top.flat()]);
    return { count: tokens.length, floats: Float32Array.from(floats) };
  });

describe("a list of logprobs", () => {
  it("has all added records in order, in blocks of whole records", () => {
    fc.assert(
      fc.property(fc.array(records, { maxLength: 60 }), (added) => {
        const list = new LogprobList();
        for (const some of added) list.add(some);
        const all = added.flatMap(({ floats }) => [...floats]);
        const count = added.reduce((sum, some) => sum + some.count, 0);
        assert.equal(list.count, count);
        assert.deepEqual(list.records(), { count, floats: Float32Array.from(all) });
        let found = 0;
        for (const block of list.blocks()) {
          let at = 0;
          for (; at < block.length; at += recordLength(block, at)) found++;
          assert.equal(at, block.length);
        }
        assert.equal(found, count);
      }),
    );
  });

  it("holds exactly the ids that a vocabulary may have", () => {
    const list = new LogprobList();
    list.add({ count: 1, floats: Float32Array.of(2 ** 24 - 1, -1, 1, 2 ** 24 - 2, -2) });
    assert.deepEqual([...list.records().floats], [2 ** 24 - 1, -1, 1, 2 ** 24 - 2, -2]);
  });

  it("does not change records that were read before when others are added", () => {
    const list = new LogprobList();
    const one = { count: 1, floats: Float32Array.of(5, -1, 0) };
    list.add(one);
    const before = list.blocks();
    for (let i = 0; i < 10_000; i++) list.add(one);
    assert.deepEqual(before, [one.floats]);
    assert.equal(list.count, 10_001);
  });

  it("takes little more memory than its numbers", () => {
    const list = new LogprobList();
    const token = { count: 1, floats: new Float32Array(43) };
    token.floats[2] = 20;
    for (let i = 0; i < 20_000; i++) list.add(token);
    const blocks = list.blocks();
    const held = blocks.reduce((bytes, { buffer }) => bytes + buffer.byteLength, 0);
    assert.ok(blocks.length < 40, `${blocks.length} blocks`);
    assert.ok(held < 1.2 * 20_000 * token.floats.byteLength, `${held} bytes`);
  });
});
