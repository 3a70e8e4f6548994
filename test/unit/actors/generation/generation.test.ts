import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { rowFinishedLength, rowFinishedStop, rowHasToken } from "../../../../actors/messages.ts";
import { type GenerateEvent, greedySampling, type OpenRequest } from "../../../../engines/generation.ts";
import { createVocabulary } from "../../../../engines/text/tokenizer/vocabulary.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { reportedTokens, textsOf } from "../../../fixtures/text/logprobs.ts";
import { createRun, crossed, readAll, tinyTokenizer } from "./rig.ts";

type RunOptions = NonNullable<Parameters<typeof createRun>[1]>;

async function startRun(t: TestContext, changes: Partial<OpenRequest> = {}, options: RunOptions = {}) {
  const rig = await createRun(changes, options);
  t.after(rig.close);
  void rig.start();
  await crossed();
  const [byte] = rig.vocabulary.encode("a");
  /** Feeds the text with one token per character. Adds `last` to the flags of the last token. */
  const feed = (choice: number, text: string, last = 0, elapsed = 100) => {
    const tokens = [...text].map((character) => byte! + character.charCodeAt(0) - "a".charCodeAt(0));
    tokens.forEach((token, i) => {
      const flags = rowHasToken | (i === tokens.length - 1 ? last : 0);
      rig.sinks[choice]!.onToken(token, flags, elapsed + i, null, 0);
    });
  };
  /** Feeds a token with two logprobs: of the token itself and of one other token. */
  const feedLogprob = (letter: string, logprob: number, last = 0) => {
    const [token] = rig.vocabulary.encode(letter);
    // Another record comes first, to test that the offset `at` is used.
    const record = Float32Array.of(-9, 0, logprob, 1, token!, logprob);
    rig.sinks[0]!.onToken(token!, rowHasToken | last, 100, record, 2);
  };
  return { ...rig, feed, feedLogprob };
}

const texts = textsOf(createVocabulary(await tinyTokenizer()));
const withLogprobs = { sampling: { ...greedySampling, topLogprobs: 1 } };

const textOf = (events: readonly GenerateEvent[], choice = 0) =>
  events.map((event) => (event.type === "text" && event.choice === choice ? event.text : "")).join("");

function doneOf(events: readonly GenerateEvent[]) {
  const last = events.at(-1);
  assert.ok(last?.type === "done", `ends with done, not ${JSON.stringify(last)}`);
  return last.usage;
}

const finishes = (events: readonly GenerateEvent[]) =>
  events.flatMap((event) => (event.type === "finish" ? [[event.choice, event.reason]] : []));

describe("a run", () => {
  it("gives text, a finish and its usage", async (t) => {
    const { feed, reader, told, closed, ends } = await startRun(t);
    feed(0, "hello", rowFinishedLength, 250);
    const events = await readAll(reader);
    assert.equal(textOf(events), "hello");
    assert.deepEqual(finishes(events), [[0, "length"]]);
    const usage = doneOf(events);
    assert.deepEqual([usage.promptTokens, usage.completionTokens], [4, 5]);
    assert.ok(Math.abs(usage.promptSeconds - 0.0025) < 1e-9);
    assert.ok(Math.abs(usage.completionSeconds - 0.00004) < 1e-9);
    assert.deepEqual(told, [{ method: "generate", ids: [1] }]);
    assert.deepEqual(closed, [{ id: 1, tokenCount: 5 }]);
    assert.equal(ends.count, 1);
  });

  it("repeats a validation that failed for a reason other than the output, and fails if that does not help", async (t) => {
    const schema = { type: "array", items: { type: "integer" }, uniqueItems: true };
    const grammar = { kind: "json_schema", schema, field: "response_format" } as const;
    const ended = async (failures: number) => {
      let tries = 0;
      const check = async () => {
        if (tries++ < failures) throw new ServerError("peer_gone", "the thread that read the request ended");
        return null;
      };
      const { feed, reader } = await startRun(t, { grammar, ignoreEos: false }, { check });
      feed(0, "[1,2]", rowFinishedStop);
      return await readAll(reader);
    };
    const events = await ended(2);
    assert.equal(textOf(events), "[1,2]");
    assert.deepEqual(finishes(events), [[0, "stop"]]);
    assert.ok(!events.some(({ type }) => type === "refusal"));
    const last = (await ended(99)).at(-1);
    assert.ok(last?.type === "error" && last.error.code === "peer_gone", JSON.stringify(last));
  });

  it("ends at a stop string, cancels the sequence, and counts the tokens up to there", async (t) => {
    const { feed, reader, told } = await startRun(t, { stop: ["ab"] });
    feed(0, "xxaxabyy", rowFinishedLength);
    const events = await readAll(reader);
    assert.equal(textOf(events), "xxax");
    assert.deepEqual(finishes(events), [[0, "stop"]]);
    assert.equal(doneOf(events).completionTokens, 6);
    assert.deepEqual(told.at(-1), { method: "cancel", ids: [1], how: "stop" });
  });

  it("finishes and counts each of several choices once, whatever rows were in flight after a stop string", async (t) => {
    const { feed, reader } = await startRun(t, { choices: 2, stop: ["b"] });
    feed(0, "abcd", rowFinishedLength);
    feed(1, "xy", rowFinishedLength);
    const events = await readAll(reader);
    assert.deepEqual(finishes(events), [
      [0, "stop"],
      [1, "length"],
    ]);
    assert.deepEqual([textOf(events, 0), textOf(events, 1)], ["a", "xy"]);
    assert.equal(doneOf(events).completionTokens, 4);
  });

  it("never reports a negative time when choices run one after another", async (t) => {
    const { feed, reader } = await startRun(t, { choices: 2 });
    feed(0, "ab", rowFinishedLength, 500);
    feed(1, "ab", rowFinishedLength, 100);
    const { promptSeconds, completionSeconds } = doneOf(await readAll(reader));
    assert.ok(promptSeconds >= 0.005 && completionSeconds > 0, `${promptSeconds} ${completionSeconds}`);
  });

  it("ends with the error with which the model rejects it", async (t) => {
    const rig = await createRun({ choices: 2 });
    t.after(rig.close);
    rig.answer.error = new ServerError("queue_full", "full");
    void rig.start();
    const events = await readAll(rig.reader);
    assert.deepEqual(events, [{ type: "error", error: { code: "queue_full", message: "full" } }]);
    assert.deepEqual(
      rig.closed.map(({ id }) => id),
      [1, 2],
    );
    assert.equal(rig.ends.count, 1);
  });

  it("refuses a prompt that does not fit without asking the model", async (t) => {
    for (const [maxTokens, param, message] of [
      [510, "prompt", /is 512 tokens\. However, you requested 51\d tokens \(\d in prompt, 510 in the completion\)/],
      [1000, "max_tokens", /requested 100\d tokens \(\d in prompt, 1000 in the completion\).* or max_tokens/],
    ] as const) {
      const { reader, told, closed, ends } = await startRun(t, { maxTokens });
      const [event] = await readAll(reader);
      assert.ok(event?.type === "error" && event.error.code === "context_length_exceeded");
      assert.equal(event.error.param, param);
      assert.match(event.error.message, message);
      assert.deepEqual([told, closed, ends.count], [[], [], 1]);
    }
  });

  it("sends nothing to the model if its reader disconnects while its prompt is prepared", async (t) => {
    const rig = await createRun();
    t.after(rig.close);
    const started = rig.start();
    rig.cancel();
    await started;
    assert.deepEqual([rig.told, rig.closed, rig.ends.count], [[], [], 1]);
  });

  it("cancels right after it was sent, and emits nothing more when the model rejects it afterwards", async (t) => {
    const rig = await createRun();
    t.after(rig.close);
    rig.answer.error = new ServerError("queue_full", "full");
    rig.answer.onAsked = () => rig.cancel();
    await rig.start();
    await crossed();
    assert.deepEqual(
      rig.told.map(({ method }) => method),
      ["generate", "cancel"],
    );
    assert.deepEqual(rig.closed, [{ id: 1, tokenCount: 0 }]);
  });

  it("fails alone when its text cannot be decoded", async (t) => {
    const { reader, sinks, told } = await startRun(t, withLogprobs);
    sinks[0]!.onToken(5, rowHasToken, 100, Float32Array.of(), 1e9);
    sinks[0]!.onToken(undefined as never, rowHasToken, 100, Float32Array.of(-1, 1e10), 0);
    const events = await readAll(reader);
    assert.equal(events.at(-1)?.type, "error");
    assert.equal(told.at(-1)?.method, "cancel");
  });
});

describe("a run whose reader falls behind", () => {
  const window = 4;

  it("pauses its sequences, loses nothing that was in flight, and continues when the reader has caught up", async (t) => {
    const { feed, reader, told } = await startRun(t, { choices: 2, maxTokens: 200 }, { window });
    const text = "abcdefgh".repeat(10);
    feed(0, text);
    feed(1, text);
    assert.deepEqual(told.at(-1), { method: "setPaused", ids: [1, 2], paused: true });
    assert.equal(told.filter(({ method }) => method === "setPaused").length, 1);
    const events: GenerateEvent[] = [];
    const reading = (async () => {
      for await (const batch of reader) events.push(...(batch as GenerateEvent[]));
    })();
    await crossed();
    assert.deepEqual([textOf(events, 0), textOf(events, 1)], [text, text]);
    assert.deepEqual(told.at(-1), { method: "setPaused", ids: [1, 2], paused: false });
    feed(0, "!", rowFinishedLength);
    feed(1, "?", rowFinishedStop);
    await reading;
    assert.deepEqual([textOf(events, 0), textOf(events, 1)], [`${text}!`, `${text}?`]);
    assert.equal(doneOf(events).completionTokens, 162);
  });

  it("emits its final event, too, only when there is room", async (t) => {
    const { feed, reader, ends } = await startRun(t, { maxTokens: 200 }, { window });
    feed(0, "abcdefgh".repeat(5), rowFinishedLength);
    assert.equal(ends.count, 0);
    const events = await readAll(reader);
    assert.equal(textOf(events), "abcdefgh".repeat(5));
    assert.deepEqual(finishes(events), [[0, "length"]]);
    assert.equal(doneOf(events).completionTokens, 40);
    assert.equal(ends.count, 1);
  });

  it("is cancelled when its reader is cut off", async (t) => {
    const { feed, reader, told, closed, ends } = await startRun(t, { maxTokens: 200 }, { window });
    feed(0, "abcdefgh");
    assert.equal(ends.count, 0);
    reader.cancel();
    await crossed();
    assert.deepEqual(told.at(-1), { method: "cancel", ids: [1] });
    assert.deepEqual([closed, ends.count], [[{ id: 1, tokenCount: 8 }], 1]);
  });

  it("keeps logprobs together with their text", async (t) => {
    const { feedLogprob, reader } = await startRun(t, { ...withLogprobs, maxTokens: 200 }, { window });
    for (let i = 1; i <= 20; i++) feedLogprob("a", -i, i === 20 ? rowFinishedLength : 0);
    const events = await readAll(reader);
    for (const event of events) {
      if (event.type === "text") assert.equal(event.logprobs?.count, event.text.length);
    }
    assert.deepEqual(
      reportedTokens(events, texts).map(({ logprob }) => logprob),
      Array.from({ length: 20 }, (_, i) => -i - 1),
    );
  });
});

describe("logprobs and stop strings", () => {
  const letters = (events: readonly GenerateEvent[]) =>
    reportedTokens(events, texts)
      .map(({ token }) => token)
      .join("");

  it("travel with the text they belong to while it is held back", async (t) => {
    const { feedLogprob, reader } = await startRun(t, { ...withLogprobs, stop: ["abc"] });
    for (const letter of "xabx") feedLogprob(letter, -1);
    feedLogprob("y", -1, rowFinishedLength);
    const events = await readAll(reader);
    assert.equal(textOf(events), "xabxy");
    for (const event of events) {
      if (event.type === "text") assert.equal(letters([event]), event.text);
    }
  });

  it("leaves out those of the stop string itself", async (t) => {
    const { feedLogprob, reader } = await startRun(t, { ...withLogprobs, stop: ["abc"] });
    for (const letter of "xyabcz") feedLogprob(letter, -1);
    const events = await readAll(reader);
    assert.equal(textOf(events), "xy");
    assert.equal(letters(events), "xy");
  });
});
