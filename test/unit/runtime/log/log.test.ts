import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createLogger, type LogOptions, maxTextLength } from "../../../../runtime/log/log.ts";

function createLog(options: LogOptions) {
  const lines: string[] = [];
  return { log: createLogger(options, { write: (line) => void lines.push(line) }), lines };
}

describe("the log", () => {
  it("as text shows time, level, message and key=value, one line an event", () => {
    const { log, lines } = createLog({ level: "info", format: "text", place: "front" });
    log.info({ port: 1234, model: "two words" }, "listening");
    assert.equal(lines.length, 1);
    assert.match(
      lines[0] ?? "",
      /^\[\d\d:\d\d:\d\d\.\d{3}\] INFO: listening place=front port=1234 model="two words"\n$/,
    );
  });

  it("as text escapes control characters, which a terminal would obey", () => {
    const { log, lines } = createLog({ level: "info", format: "text" });
    log.info({ path: "/\x1b[2J\x9b31m\x7f\u202e" }, "request");
    assert.ok(lines[0]?.endsWith('request path="/\\u001b[2J\\u009b31m\\u007f\\u202e"\n'), JSON.stringify(lines[0]));
  });

  it("as text puts an error's stack below its line", () => {
    const { log, lines } = createLog({ level: "info", format: "text" });
    log.error({ err: new Error("boom") }, "it broke");
    assert.match(lines[0] ?? "", /ERROR: it broke\nError: boom\n {4}at /);
  });

  it("as JSON is one object a line", () => {
    const { log, lines } = createLog({ level: "info", format: "json", place: "front" });
    log.warn({ port: 1234 }, "careful");
    const { time, ...rest } = JSON.parse(lines[0] ?? "");
    assert.equal(typeof time, "number");
    assert.deepEqual(rest, { level: 40, place: "front", port: 1234, msg: "careful" });
  });

  it("cuts long texts in any field, and says how much", () => {
    for (const format of ["text", "json"] as const) {
      const { log, lines } = createLog({ level: "info", format });
      const long = "x".repeat(60_000);
      log.info({ path: `/${long}`, request: { headers: { host: long } }, tags: [long] }, long);
      log.error({ err: new Error(long) }, "it broke");
      for (const line of lines) {
        assert.ok(line.length < 20_000, `${line.length} characters`);
        assert.match(line, /… \(\d+ more characters\)/);
      }
      assert.doesNotMatch(lines[0] ?? "", new RegExp(`x{${maxTextLength + 1}}`));
    }
  });

  it("changes logged objects only in the line", () => {
    const { log } = createLog({ level: "info", format: "json" });
    const fields = { path: "x".repeat(3000), list: ["x".repeat(3000)] };
    log.info(fields, "request");
    assert.deepEqual([fields.path.length, fields.list[0]?.length], [3000, 3000]);
  });

  it("drops lines below its level", () => {
    const { log, lines } = createLog({ level: "warn", format: "json" });
    log.info("not this");
    assert.deepEqual(lines, []);
  });

  it("removes secrets at the top and two levels down, in both formats", () => {
    for (const format of ["text", "json"] as const) {
      const { log, lines } = createLog({ level: "info", format });
      const secrets = { authorization: "Bearer hush", "x-api-key": "hush", token: "hush", apiKey: "hush" };
      log.info({ ...secrets, headers: secrets, request: { headers: secrets } }, "request");
      assert.doesNotMatch(lines[0] ?? "", /hush/);
      assert.equal(lines[0]?.match(/\[redacted\]/g)?.length, 12);
    }
  });
});
