// Consecutive generations, as an agent loop runs them: each returns its result, and all events go to the same sink.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Generation, type GenerationOptions, type OutputEvent } from "../../../../actors/generation/generation.ts";
import { rowFinishedLength, rowFinishedStop, rowHasToken } from "../../../../actors/messages.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { createModel, crossed, request } from "./rig.ts";

async function createRounds() {
  const { model, sinks, vocabulary, told, closed } = await createModel();
  const events: OutputEvent[] = [];
  const sink = { hasRoom: true };
  const round = (options: Partial<GenerationOptions> = {}) =>
    new Generation({
      request: request(),
      adapter: null,
      model,
      signal: new AbortController().signal,
      onPrepared: () => {},
      emit: (event) => {
        events.push(event);
        return sink.hasRoom;
      },
      ...options,
    });
  /** Feeds a whole text to the most recently opened sequence, one token per character. */
  const feed = (text: string, last: number) => {
    const tokens = [...text].map((character) => vocabulary.encode(character)[0]!);
    tokens.forEach((token, i) => {
      sinks.at(-1)!.onToken(token, rowHasToken | (i === tokens.length - 1 ? last : 0), 100, null, 0);
    });
  };
  return { round, feed, events, sink, told, closed };
}

const textOf = (events: readonly OutputEvent[]) =>
  events.map((event) => (event.type === "text" ? event.text : "")).join("");

describe("generations in sequence", () => {
  it("return their own results and emit into one sink, in order", async () => {
    const { round, feed, events, closed } = await createRounds();
    const first = round().run();
    await crossed();
    feed("one", rowFinishedStop);
    const { usage, finishReasons } = await first;
    assert.deepEqual([finishReasons, usage.completionTokens], [["stop"], 3]);
    const second = round().run();
    await crossed();
    feed("three", rowFinishedLength);
    const next = await second;
    assert.deepEqual([next.finishReasons, next.usage.completionTokens], [["length"], 5]);
    const types = events.map(({ type }) => type).filter((type, i, all) => type !== all[i - 1]);
    assert.deepEqual(types, ["begin", "text", "finish", "begin", "text", "finish"]);
    assert.equal(textOf(events), "onethree");
    assert.deepEqual(closed, [
      { id: 1, tokenCount: 3 },
      { id: 2, tokenCount: 5 },
    ]);
  });

  it("pause at the model while the sink has no room, also the next one", async () => {
    const { round, feed, sink, told } = await createRounds();
    sink.hasRoom = false;
    for (const id of [1, 2]) {
      const generation = round();
      const result = generation.run();
      await crossed();
      feed("ab", 0);
      assert.deepEqual(told.at(-1), { method: "setPaused", ids: [id], paused: true });
      generation.resume();
      assert.deepEqual(told.at(-1), { method: "setPaused", ids: [id], paused: false });
      feed("c", rowFinishedStop);
      assert.equal((await result).usage.completionTokens, 3);
    }
  });

  it("reject with the reason when the signal is aborted, and leave nothing at the model", async () => {
    const { round, feed, events, told, closed } = await createRounds();
    const stop = new AbortController();
    const first = round({ signal: stop.signal }).run();
    await crossed();
    feed("ab", 0);
    stop.abort(new ServerError("cancelled", "the reader has left"));
    await assert.rejects(first, { code: "cancelled" });
    const emitted = events.length;
    feed("c", rowFinishedStop);
    assert.equal(events.length, emitted);
    assert.deepEqual(told.at(-1), { method: "cancel", ids: [1] });
    await assert.rejects(round({ signal: stop.signal }).run(), { code: "cancelled" });
    assert.deepEqual(closed, [{ id: 1, tokenCount: 2 }]);
  });
});
