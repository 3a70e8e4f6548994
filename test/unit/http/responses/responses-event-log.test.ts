import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { LongEvent, TextChunk } from "../../../../http/responses/fold/event-chunks.ts";
import { EventLog, type LogReader } from "../../../../http/responses/stored/event-log.ts";
import { FollowedLog } from "../../../../http/responses/stored/followed-log.ts";
import { PIECE_LENGTH } from "../../../../http/shared/answer/json-pieces.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { memoryResponses } from "../../../fixtures/fakes/memory-responses.ts";
import { wholeText } from "../../../fixtures/text/pieces.ts";

const DONE = "data: [DONE]\n\n";
const event = (number: number): string => `event: e\ndata: ${number}\n\n`;
const never = new AbortController().signal;

async function read(reader: LogReader): Promise<string> {
  let text = "";
  for await (const _ of reader.batches()) {
    text += wholeText(reader.encode());
    if (reader.isEnded) break;
  }
  return text;
}

/** Returns the text that the log has stored. */
const textOf = (log: EventLog): string =>
  log
    .kept()
    .map((chunk) => wholeText(chunk.after(-1)))
    .join("");
const isCode = (code: string) => (error: unknown) => error instanceof ServerError && error.code === code;

describe("the event log of a response", () => {
  it("gives every reader the events after its number, also a late one", async () => {
    const log = new EventLog();
    log.append(new TextChunk(0, event(0) + event(1)));
    const early = read(log.reader(0, never));
    log.append(new TextChunk(2, event(2)));
    const ahead = read(log.reader(9, never));
    await Promise.resolve();
    log.append(new TextChunk(3, event(3)));
    log.close();
    assert.equal(await early, event(1) + event(2) + event(3) + DONE);
    assert.equal(await ahead, DONE);
  });

  it("gives every reader its unread long events complete, numbered like others", async () => {
    const long = (number: number) => new LongEvent(number, 1000, () => ["event: e\n", `data: ${number}\n\n`]);
    for (const maxLength of [100, 10_000]) {
      const log = new EventLog(maxLength);
      log.append(new TextChunk(0, event(0) + event(1)));
      const reading = [-1, 0, 1, 2, 3, 4].map((after) => read(log.reader(after, never)));
      await nextTurn();
      log.append(long(2));
      const failing = log.reader(1, never);
      for (const _ of failing.encode());
      assert.match(wholeText(failing.fail({ code: "reader_stalled", message: "" })), /"sequence_number":3/);
      await nextTurn();
      log.append(new TextChunk(3, event(3)));
      await nextTurn();
      log.append(long(4));
      log.close();
      const all = [0, 1, 2, 3, 4].map(event);
      const given = await Promise.all(reading);
      assert.deepEqual(
        given,
        [0, 1, 2, 3, 4, 5].map((first) => all.slice(first).join("") + DONE),
      );
      const kept = log.kept();
      assert.deepEqual([kept[0]?.first, textOf(log)], maxLength === 100 ? [4, event(4)] : [0, all.join("")]);
    }
  });

  it("gives a late reader of a long stream pieces of bounded length", () => {
    const log = new EventLog();
    const count = 2000;
    const long = (number: number): string =>
      `event: e\ndata: ${number} ${"x".repeat(number === 7 ? 500_000 : 400)}\n\n`;
    const all = Array.from({ length: count }, (_, number) => long(number));
    for (const [number, text] of all.entries()) log.append(new TextChunk(number, text));
    log.close();
    for (const after of [-1, 0, 6, 7, 1000, count - 2, count - 1, count]) {
      const given = log.reader(after, never).encode();
      const pieces = typeof given === "string" ? [given] : [...given];
      assert.ok(pieces.join("") === all.slice(after + 1).join("") + DONE, `after ${after}`);
      assert.ok(Math.max(...pieces.map(({ length }) => length)) <= 2 * PIECE_LENGTH, `after ${after}`);
    }
  });

  it("releases a reader that has left without further events", async () => {
    const log = new EventLog();
    log.append(new TextChunk(0, event(0)));
    const leaving = new AbortController();
    const reading = read(log.reader(-1, leaving.signal));
    setImmediate(() => leaving.abort());
    assert.equal(await reading, event(0));
  });

  it("keeps the end of a very long stream, and refuses earlier events", () => {
    const log = new EventLog(3 * event(0).length);
    const slow = log.reader(-1, never);
    for (let number = 0; number < 5; number++) log.append(new TextChunk(number, event(number)));
    assert.deepEqual([log.kept()[0]?.first, textOf(log)], [2, event(2) + event(3) + event(4)]);
    assert.throws(() => log.reader(0, never), isCode("not_found"));
    assert.equal(log.reader(1, never).encode(), event(2) + event(3) + event(4));
    assert.throws(() => slow.encode(), isCode("reader_stalled"));
  });

  it("keeps the unread events of its creator until it leaves", async () => {
    const log = new EventLog(2 * event(0).length);
    const leaving = new AbortController();
    const creator = log.creatorReader(leaving.signal);
    const batches = creator.batches();
    for (let number = 0; number < 4; number++) log.append(new TextChunk(number, event(number)));
    await batches.next();
    assert.equal(creator.encode(), event(0) + event(1) + event(2) + event(3));
    log.append(new TextChunk(4, event(4)));
    assert.throws(() => log.reader(1, never), isCode("not_found"));
    for (let number = 5; number < 9; number++) log.append(new TextChunk(number, event(number)));
    assert.equal(log.reader(4, never).encode(), [5, 6, 7, 8].map(event).join(""));
    assert.equal(log.kept()[0]?.first, 7);
    leaving.abort();
    await batches.return(undefined);
    assert.throws(() => log.reader(4, never), isCode("not_found"));
  });

  it("numbers the error of a failed reader after its last event", () => {
    const log = new EventLog();
    const numberOf = (failed: string): unknown => JSON.parse(failed.split("data: ")[1] ?? "").sequence_number;
    const error = { code: "reader_stalled", message: "too slow" } as const;
    assert.equal(numberOf(log.reader(-1, never).fail(error)), 0);
    log.append(new TextChunk(0, event(0) + event(1)));
    log.append(new TextChunk(2, event(2)));
    const reader = log.reader(0, never);
    assert.equal(numberOf(reader.fail(error)), 1);
    reader.encode();
    log.append(new TextChunk(3, event(3)));
    assert.equal(numberOf(reader.fail(error)), 3);
  });

  it("holds no additional memory for a waiting reader", async () => {
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    const log = new EventLog(1);
    const leaving = new AbortController();
    const reader = log.reader(-1, leaving.signal);
    const reading = (async () => {
      for await (const _ of reader.batches()) reader.encode();
    })();
    const heldAfter = async (count: number): Promise<number> => {
      for (let number = 0; number < count; number++) {
        log.append(new TextChunk(number, "\n\n"));
        // Gives the reader time to start its next wait.
        for (let turn = 0; turn < 10; turn++) await null;
      }
      // Collects garbage several times, because code is compiled in the meantime and some garbage is found only by a
      // second collection.
      for (let round = 0; round < 3; round++) {
        await nextTurn();
        collect();
      }
      return process.memoryUsage().heapUsed;
    };
    const before = await heldAfter(20_000);
    assert.ok((await heldAfter(20_000)) - before < 2 ** 20);
    leaving.abort();
    await reading;
  });
});

describe("the events of a response on another replica", () => {
  it("end with a retryable error if no replica could generate it again", async () => {
    const found = { id: "r", runner: null, owner: "b", status: "incomplete", isBackground: true, isPublished: true };
    const log = new FollowedLog({
      id: "r",
      after: 1,
      replicas: { follow: async () => null },
      store: memoryResponses(),
      isRunningHere: () => false,
      find: async () => ({ ...found, body: [], interrupted: null, events: null }),
    });
    await assert.rejects(log.batches(never).next(), isCode("peer_gone"));
  });
});
