import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { BodyReader, type Framing } from "../../../bench/serving/client/http-body.ts";

/**
 * Reads a body that is cut into pieces at these positions. Returns its content, and the index of the piece that
 * completed it; -1 if no piece did.
 */
function read(framing: Framing, wire: string, cuts: readonly number[] = []) {
  let body = "";
  const sink = {
    body: (data: Buffer, from: number, to: number) => {
      body += data.toString("latin1", from, to);
    },
  };
  const reader = new BodyReader(framing, sink);
  const ends = [...cuts].sort((a, b) => a - b).concat(wire.length);
  let from = 0;
  for (const [i, to] of ends.entries()) {
    if (reader.read(Buffer.from(wire.slice(from, to), "latin1"), 0, 0)) return { body, completeAt: i };
    from = to;
  }
  return { body, completeAt: -1 };
}

describe("the reader of HTTP bodies", () => {
  it("ends a body of known length at that length", () => {
    assert.deepEqual(read(5, "hello"), { body: "hello", completeAt: 0 });
    assert.deepEqual(read(5, "hel"), { body: "hel", completeAt: -1 });
    assert.deepEqual(read(0, ""), { body: "", completeAt: 0 });
  });

  it("joins chunks, with extensions and trailers, wherever packets are split", () => {
    const wire = "5\r\nhello\r\nb;name=1f\r\n, world: 12\r\n0\r\nsome-trailer: x\r\n\r\n";
    fc.assert(
      fc.property(fc.array(fc.nat(wire.length - 1), { maxLength: 8 }), (cuts) => {
        assert.deepEqual(read("chunked", wire, cuts), { body: "hello, world: 12", completeAt: cuts.length });
      }),
    );
  });

  it("is not complete before the last chunk's empty line", () => {
    assert.equal(read("chunked", "2\r\nok\r\n0\r\n").completeAt, -1);
    assert.equal(read("chunked", "2\r\nok\r\n0\r\n\r\n").completeAt, 0);
  });

  it("leaves a body without a length open until the connection ends", () => {
    assert.deepEqual(read("until close", "all of it"), { body: "all of it", completeAt: -1 });
    assert.equal(new BodyReader("until close", { body: () => {} }).endsWithConnection, true);
  });
});
