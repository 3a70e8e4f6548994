import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { BodyBudget, BodyReader, MAX_BODY_BYTES, refusedLength } from "../../../../http/server/body.ts";

/** Returns a fake chunk that has a byte length but no content. */
function chunk(byteLength: number): Uint8Array {
  return { byteLength } as Uint8Array;
}

describe("reading bodies", () => {
  it("joins the chunks of a body", () => {
    const reader = new BodyReader(new BodyBudget(), "a");
    for (const piece of ["ab", "c"]) assert.equal(reader.add(Buffer.from(piece)), null);
    assert.equal(Buffer.from(reader.take()).toString(), "abc");
  });

  it("joins a body of many chunks, and holds few pieces", () => {
    const reader = new BodyReader(new BodyBudget(), "a");
    const bytes = Buffer.from(Array.from({ length: 300_000 }, (_, i) => i % 251));
    const before = process.memoryUsage().heapUsed;
    for (let i = 0; i < bytes.length; i++) reader.add(Buffer.from(bytes.subarray(i, i + 1)));
    const grown = process.memoryUsage().heapUsed - before;
    assert.ok(grown < 40 * bytes.length, `${grown} bytes of heap for a body of ${bytes.length}`);
    assert.ok(bytes.equals(reader.take()));
  });

  it("refuses one byte over the body limit, declared or received", () => {
    const reader = new BodyReader(new BodyBudget(), "a");
    assert.equal(refusedLength(String(MAX_BODY_BYTES)), null);
    assert.equal(refusedLength(String(MAX_BODY_BYTES + 1))?.code, "body_too_large");
    assert.equal(reader.add(chunk(MAX_BODY_BYTES)), null);
    assert.equal(reader.add(chunk(1))?.code, "body_too_large");
  });

  it("refuses bodies over the total limit until one has ended", () => {
    const budget = new BodyBudget(3 * MAX_BODY_BYTES);
    const readers = ["a", "b", "c"].map((client) => new BodyReader(budget, client));
    for (const reader of readers) assert.equal(reader.add(chunk(MAX_BODY_BYTES)), null);
    const late = new BodyReader(budget, "d");
    const refusal = late.add(chunk(1));
    assert.equal(refusal?.code, "queue_full");
    assert.match(refusal.message, new RegExp(String(3 * MAX_BODY_BYTES)));
    readers[0]!.release();
    assert.equal(late.add(chunk(1)), null);
  });

  it("returns the bytes of a refused body once", () => {
    const budget = new BodyBudget(2 * MAX_BODY_BYTES);
    for (let i = 0; i < 20; i++) {
      const reader = new BodyReader(budget, "a");
      reader.add(chunk(MAX_BODY_BYTES));
      reader.add(chunk(1));
      reader.release();
    }
    for (const client of ["a", "b"]) assert.equal(budget.take(client, MAX_BODY_BYTES), null);
    assert.equal(budget.take("c", 1)?.code, "queue_full");
  });

  it("limits a client to half of the total, or one whole body, and reports its share", () => {
    for (const [limit, share] of [
      [8 * MAX_BODY_BYTES, 4 * MAX_BODY_BYTES],
      [MAX_BODY_BYTES + 1000, MAX_BODY_BYTES],
      [1000, 1000],
    ] as const) {
      const budget = new BodyBudget(limit);
      assert.equal(budget.take("greedy", share), null);
      assert.equal(budget.take("other", limit - share), null);
      budget.giveBack("other", limit - share);
      const refusal = budget.take("greedy", 1);
      assert.equal(refusal?.code, "queue_full");
      assert.match(
        refusal.message,
        new RegExp(`this client's .* its share of ${share} bytes \\(max_body_bytes_in_flight\\)`),
      );
      budget.giveBack("greedy", share);
      assert.equal(budget.take("greedy", share), null);
    }
  });

  it("counts a body until its release, which may be repeated", () => {
    const budget = new BodyBudget(MAX_BODY_BYTES);
    const reader = new BodyReader(budget, "a");
    reader.add(chunk(MAX_BODY_BYTES));
    reader.take();
    assert.equal(new BodyReader(budget, "b").add(chunk(1))?.code, "queue_full");
    reader.release(1000);
    assert.equal(budget.take("b", MAX_BODY_BYTES - 1000), null);
    assert.equal(budget.take("c", 1)?.code, "queue_full");
    budget.giveBack("b", MAX_BODY_BYTES - 1000);
    reader.release();
    reader.release();
    assert.equal(reader.sizeBytes, MAX_BODY_BYTES);
    assert.equal(budget.take("b", MAX_BODY_BYTES), null);
  });
});
