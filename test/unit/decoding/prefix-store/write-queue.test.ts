import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { WriteQueue } from "../../../../engines/decoding/prefix-store/write-queue.ts";
import { contentOf } from "./rig.ts";

describe("the queue of writes", () => {
  it("drops the oldest writes above its limit of bytes", () => {
    const queue = new WriteQueue(2500);
    for (const seed of [1, 2, 3, 4]) queue.push(contentOf(seed, 100, 1000));
    assert.deepEqual([queue.size, queue.bytes, queue.droppedCount], [2, 2000, 2]);
    assert.deepEqual([queue.shift(), queue.shift(), queue.shift()], [contentOf(3), contentOf(4), undefined]);
  });

  it("accepts a single write above its limit", () => {
    const queue = new WriteQueue(2500);
    queue.push(contentOf(1));
    queue.push(contentOf(2, 100, 9000));
    assert.deepEqual([queue.size, queue.bytes, queue.droppedCount], [1, 9000, 1]);
  });

  it("replaces shorter prefixes by a longer one, and knows what it covers", () => {
    const queue = new WriteQueue(100_000);
    queue.push(contentOf(1, 100));
    queue.push(contentOf(2, 100));
    queue.push(contentOf(1, 200));
    assert.ok(queue.covers(contentOf(1, 150)) && queue.covers(contentOf(2, 100)));
    assert.ok(!queue.covers(contentOf(1, 201)) && !queue.covers({ ...contentOf(1, 100), adapter: "x" }));
    assert.deepEqual([queue.size, queue.droppedCount], [2, 0]);
  });
});
