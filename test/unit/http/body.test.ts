import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { BodyBudget, BodyReader, MAX_BODY_BYTES } from "../../../http/body.ts";

/** Looks like many bytes and is none. */
function chunk(byteLength: number): Uint8Array {
  return { byteLength } as Uint8Array;
}

describe("reading bodies", () => {
  it("joins the chunks of a body", () => {
    const reader = new BodyReader(new BodyBudget());
    for (const piece of ["ab", "c"]) assert.equal(reader.add(Buffer.from(piece)), null);
    assert.equal(Buffer.from(reader.bytes()).toString(), "abc");
  });

  it("joins a body of very many chunks, and holds few pieces of it meanwhile", () => {
    const reader = new BodyReader(new BodyBudget());
    const bytes = Buffer.from(Array.from({ length: 300_000 }, (_, i) => i % 251));
    const before = process.memoryUsage().heapUsed;
    for (let i = 0; i < bytes.length; i++) reader.add(Buffer.from(bytes.subarray(i, i + 1)));
    const grown = process.memoryUsage().heapUsed - before;
    assert.ok(grown < 40 * bytes.length, `${grown} bytes of heap for a body of ${bytes.length}`);
    assert.ok(bytes.equals(reader.bytes()));
  });

  it("refuses one byte over the limit of a body, whether announced or come", () => {
    const reader = new BodyReader(new BodyBudget());
    assert.equal(reader.refuseLength(String(MAX_BODY_BYTES)), null);
    assert.equal(reader.refuseLength(String(MAX_BODY_BYTES + 1))?.code, "body_too_large");
    assert.equal(reader.add(chunk(MAX_BODY_BYTES)), null);
    assert.equal(reader.add(chunk(1))?.code, "body_too_large");
  });

  it("refuses bodies over the limit of all, until one has ended", () => {
    const budget = new BodyBudget(3 * MAX_BODY_BYTES);
    const readers = Array.from({ length: 3 }, () => new BodyReader(budget));
    for (const reader of readers) assert.equal(reader.add(chunk(MAX_BODY_BYTES)), null);
    const late = new BodyReader(budget);
    const refusal = late.add(chunk(1));
    assert.equal(refusal?.code, "queue_full");
    assert.match(refusal.message, new RegExp(String(3 * MAX_BODY_BYTES)));
    readers[0]!.release();
    assert.equal(late.add(chunk(1)), null);
  });

  it("gives back what a refused body had taken, once", () => {
    const budget = new BodyBudget(2 * MAX_BODY_BYTES);
    for (let i = 0; i < 20; i++) {
      const reader = new BodyReader(budget);
      reader.add(chunk(MAX_BODY_BYTES));
      reader.add(chunk(1));
      reader.release();
    }
    assert.equal(budget.take(2 * MAX_BODY_BYTES), true);
    assert.equal(budget.take(1), false);
  });
});
