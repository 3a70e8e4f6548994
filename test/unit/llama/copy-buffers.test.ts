import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { CopyBuffers } from "../../../engines/llama/kv/copy-buffers.ts";

const mebibyte = 2 ** 20;

describe("the buffers of copies", () => {
  it("are refused beyond the limit, and no longer counted once passed on", () => {
    const buffers = new CopyBuffers(3 * mebibyte);
    const taken = [0, 1, 2].map(() => buffers.take(1000));
    assert.ok(taken.every((buffer) => buffer !== null && buffer.length >= 1000));
    assert.equal(buffers.take(1000), null);
    assert.equal(buffers.count(1), false);
    buffers.forget(taken[0]!.length);
    assert.ok(buffers.take(1000));
  });

  it("are reused once returned, also by a copy that has grown a little", () => {
    const buffers = new CopyBuffers(200 * mebibyte);
    const first = buffers.take(90 * mebibyte)!;
    buffers.give(first);
    assert.equal(buffers.take(94 * mebibyte), first);
  });

  it("make room for those of another size while nobody uses them", () => {
    const buffers = new CopyBuffers(8 * mebibyte);
    const small = [0, 1, 2, 3].map(() => buffers.take(2 * mebibyte)!);
    for (const buffer of small.slice(1)) buffers.give(buffer);
    assert.ok(buffers.take(6 * mebibyte));
    assert.equal(buffers.take(2 * mebibyte), null);
  });

  it("always hold one copy, however large", () => {
    const buffers = new CopyBuffers(mebibyte);
    const large = buffers.take(5 * mebibyte);
    assert.ok(large);
    assert.equal(buffers.take(1), null);
    buffers.give(large);
    assert.ok(buffers.take(1));
  });
});
