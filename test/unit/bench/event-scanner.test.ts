import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { EventScanner } from "../../../bench/serving/client/event-scanner.ts";

const role = 'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":null}}]}\n\n';
const empty = 'data: {"choices":[{"index":0,"delta":{"content":""}}]}\n\n';
const text = (content: string) =>
  `data: ${JSON.stringify({ usage: null, choices: [{ index: 0, delta: { content } }] })}\n\n`;
const usage = 'data: {"choices":[],"usage":{"prompt_tokens":31,"completion_tokens":3,"total_tokens":34}}\n\n';
const done = "data: [DONE]\n\n";

/** Returns what a scanner reports for pieces that arrive after 1, 2, 3 … ms. */
function scan(pieces: readonly string[]) {
  const gapsMs: number[] = [];
  const scanner = new EventScanner(gapsMs);
  for (const [i, piece] of pieces.entries()) {
    const data = Buffer.from(piece);
    scanner.scan(data, 0, data.length, i + 1);
  }
  return { scanner, gapsMs };
}

describe("the scanner of event streams", () => {
  it("counts texts and records when the first and the last arrived", () => {
    const { scanner, gapsMs } = scan([role, empty, text("Hi"), text(" there"), "", text("!"), usage, done]);
    assert.equal(scanner.textCount, 3);
    assert.deepEqual([scanner.firstTextMs, scanner.lastTextMs], [3, 6]);
    assert.deepEqual(gapsMs, [1, 2]);
  });

  it("reads the usage, and reports no error if there is none", () => {
    const { scanner } = scan([text("Hi"), usage, done]);
    assert.equal(scanner.usage?.prompt_tokens, 31);
    assert.equal(scanner.usage?.completion_tokens, 3);
    assert.equal(scanner.error, null);
  });

  it("counts several texts of one packet, with no time between them", () => {
    const { scanner, gapsMs } = scan([text("a") + text("b") + text("c")]);
    assert.equal(scanner.textCount, 3);
    assert.deepEqual(gapsMs, [0, 0]);
  });

  it("counts reasoning as text, and a text after a field of the same ending that is null", () => {
    const reasoning = 'data: {"choices":[{"delta":{"reasoning_content":"hm"}}]}\n';
    const after = 'data: {"choices":[{"delta":{"reasoning_content":null,"content": "x"}}]}\n';
    assert.equal(scan([reasoning, after]).scanner.textCount, 2);
  });

  it("does not mistake texts for fields", () => {
    const { scanner } = scan([text('"content":"x" "usage":{ "error":{'), text('"'), text("")]);
    assert.equal(scanner.textCount, 2);
    assert.equal(scanner.usage, null);
    assert.equal(scanner.error, null);
  });

  it("reports an error inside the stream", () => {
    const failed = 'data: {"error":{"message":"no","type":"server_error","code":"peer_gone"}}\n\n';
    assert.equal(scan([text("Hi"), failed, done]).scanner.error, "peer_gone");
  });

  it("ignores comments, and reads lines that end in CR LF", () => {
    const crlf = (text("Hi") + usage).replaceAll("\n", "\r\n");
    const { scanner } = scan([': keep-alive "content":"x"\n\n', crlf]);
    assert.equal(scanner.textCount, 1);
    assert.equal(scanner.usage?.completion_tokens, 3);
  });

  it("gives the same results wherever packets are split", () => {
    const whole = role + text("Grüße, 世界") + text('"quoted"') + usage + done;
    const bytes = Buffer.from(whole);
    fc.assert(
      fc.property(fc.uniqueArray(fc.nat(bytes.length), { maxLength: 12 }), (cuts) => {
        const ends = [...cuts.sort((a, b) => a - b), bytes.length];
        const scanner = new EventScanner([]);
        let from = 0;
        for (const to of ends) {
          scanner.scan(bytes, from, to, 1);
          from = to;
        }
        assert.equal(scanner.textCount, 2);
        assert.equal(scanner.usage?.prompt_tokens, 31);
        assert.equal(scanner.error, null);
      }),
    );
  });
});
