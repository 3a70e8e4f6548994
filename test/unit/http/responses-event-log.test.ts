import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { EventLog, type LogReader } from "../../../http/responses/event-log.ts";
import { ServerError } from "../../../runtime/errors.ts";

const DONE = "data: [DONE]\n\n";
const event = (number: number): string => `event: e\ndata: ${number}\n\n`;
const never = new AbortController().signal;

async function read(reader: LogReader): Promise<string> {
  let text = "";
  for await (const _ of reader.batches()) {
    text += reader.encode();
    if (reader.isEnded) break;
  }
  return text;
}

const isCode = (code: string) => (error: unknown) => error instanceof ServerError && error.code === code;

describe("the log of a response's events", () => {
  it("gives each reader what comes after its event, however late it comes", async () => {
    const log = new EventLog();
    log.append(0, event(0) + event(1));
    const early = read(log.reader(0, never));
    log.append(2, event(2));
    const ahead = read(log.reader(9, never));
    await Promise.resolve();
    log.append(3, event(3));
    log.close();
    assert.equal(await early, event(1) + event(2) + event(3) + DONE);
    assert.equal(await ahead, DONE);
    assert.equal(await read(EventLog.ended(log.kept()).reader(2, never)), event(3) + DONE);
  });

  it("lets a reader go that has left, though nothing comes", async () => {
    const log = new EventLog();
    log.append(0, event(0));
    const leaving = new AbortController();
    const reading = read(log.reader(-1, leaving.signal));
    setImmediate(() => leaving.abort());
    assert.equal(await reading, event(0));
  });

  it("keeps the end of a very long stream, and tells those who want more", () => {
    const log = new EventLog(3 * event(0).length);
    const slow = log.reader(-1, never);
    for (let number = 0; number < 5; number++) log.append(number, event(number));
    assert.deepEqual(log.kept(), { first: 2, text: event(2) + event(3) + event(4) });
    assert.throws(() => log.reader(0, never), isCode("not_found"));
    assert.equal(log.reader(1, never).encode(), event(2) + event(3) + event(4));
    assert.throws(() => slow.encode(), isCode("reader_stalled"));
  });
});
