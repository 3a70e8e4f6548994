// Event lines (SSE): a stream gives the same events wherever it is split.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { EventLines } from "../../../../engines/remote/event-lines.ts";

describe("event lines", () => {
  const text = ': comment\n\ndata: {"a":"é😀"}\r\n\r\ndata:2\n\nevent: x\nerror: {"c":3}\n\ndata: [DONE]\n\n';
  const expected = ['{"a":"é😀"}', "2", '{"c":3}', "[DONE]"];

  it("are the same wherever the bytes are split", () => {
    const bytes = Buffer.from(text);
    for (let at = 0; at <= bytes.length; at++) {
      const lines = new EventLines();
      assert.deepEqual([...lines.push(bytes.subarray(0, at)), ...lines.push(bytes.subarray(at))], expected);
    }
  });

  it("refuses an event without end", () => {
    const lines = new EventLines();
    const part = Buffer.alloc(2 ** 20, "x");
    assert.throws(
      () => {
        for (let i = 0; i < 20; i++) lines.push(part);
      },
      { kind: "garbage" },
    );
  });
});
