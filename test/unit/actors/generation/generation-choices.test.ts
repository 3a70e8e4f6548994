// Generation choices: the requests that a generation sends to the model, and how it handles several choices, prompt logprobs
// and cached tokens.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { BestOf } from "../../../../actors/generation/output/best-of.ts";
import { rowFinishedLength, rowFinishedStop, rowHasToken } from "../../../../actors/messages.ts";
import { type GenerateEvent, greedySampling, type OpenRequest } from "../../../../engines/generation.ts";
import { SocketEndpoint } from "../../../../runtime/endpoint/socket-endpoint.ts";
import { socketPair } from "../../../fixtures/actors/endpoint-pair.ts";
import { reportedTokens, textsOf, tokensOf } from "../../../fixtures/text/logprobs.ts";
import { createRun, crossed, readAll } from "./rig.ts";

async function startRun(t: TestContext, changes: Partial<OpenRequest>, window = 64) {
  const rig = await createRun(changes, { window });
  t.after(rig.close);
  void rig.start();
  await crossed();
  /** Feeds a choice its whole text, one token per character, each with the given logprob. */
  const say = (choice: number, text: string, logprob: number, last = rowFinishedLength) => {
    const tokens = [...text].map((character) => rig.vocabulary.encode(character)[0]!);
    tokens.forEach((token, i) => {
      const flags = rowHasToken | (i === tokens.length - 1 ? last : 0);
      rig.sinks[choice]!.onToken(token, flags, 100, Float32Array.of(logprob, 0), 0);
    });
  };
  return { ...rig, say };
}

function choicesOf(events: readonly GenerateEvent[]): string[] {
  const texts: string[] = [];
  for (const event of events) {
    if (event.type === "text") texts[event.choice] = (texts[event.choice] ?? "") + event.text;
    else if (event.type === "finish") texts[event.choice] ??= "";
  }
  return texts;
}

const finishes = (events: readonly GenerateEvent[]) =>
  events.flatMap((event) => (event.type === "finish" ? [[event.choice, event.reason]] : []));

describe("a run of more candidates than choices", () => {
  it("returns those most likely per token, in that order, and counts the tokens of all", async (t) => {
    const { say, reader, asked } = await startRun(t, { choices: 2, candidates: 4 });
    say(0, "long", -0.5);
    say(1, "a", -1);
    say(2, "best", -0.25, rowFinishedStop);
    say(3, "no", -3);
    const events = await readAll(reader);
    assert.deepEqual(choicesOf(events), ["best", "long"]);
    assert.deepEqual(finishes(events), [
      [0, "stop"],
      [1, "length"],
    ]);
    const done = events.at(-1);
    assert.ok(done?.type === "done" && done.usage.completionTokens === 11);
    assert.ok(events.every((event) => !("logprobs" in event)));
    assert.deepEqual(
      asked.map(({ choice, sampling }) => [choice, sampling.topLogprobs]),
      [0, 1, 2, 3].map((choice) => [choice, 0]),
    );
  });

  it("emits nothing until the last has ended", async (t) => {
    const { say, reader, sinks, vocabulary } = await startRun(t, { choices: 1, candidates: 2 });
    say(0, "ab", -1);
    const reading = readAll(reader);
    let isRead = false;
    void reading.then(() => {
      isRead = true;
    });
    const [token] = vocabulary.encode("c");
    sinks[1]!.onToken(token!, rowHasToken, 100, Float32Array.of(-9, 0), 0);
    await crossed();
    assert.equal(isRead, false);
    say(1, "d", -9);
    assert.deepEqual(choicesOf(await reading), ["ab"]);
  });

  it("keeps the logprobs that were asked for", async (t) => {
    const sampling = { ...greedySampling, topLogprobs: 2 };
    const { say, reader, asked, vocabulary } = await startRun(t, { choices: 1, candidates: 2, sampling });
    say(0, "ab", -2);
    say(1, "xyz", -1);
    const logprobs = reportedTokens(await readAll(reader), textsOf(vocabulary));
    assert.deepEqual(
      logprobs.map(({ token, logprob }) => [token, logprob]),
      ["x", "y", "z"].map((letter) => [letter, -1]),
    );
    assert.equal(asked[0]?.sampling.topLogprobs, 2);
  });

  it("prefers any text to none, and keeps the order of equally likely ones", async (t) => {
    const { sinks, say, reader } = await startRun(t, { choices: 3, candidates: 4 });
    sinks[0]!.onToken(2, rowFinishedStop, 100, null, 0);
    say(1, "b", Number.NEGATIVE_INFINITY);
    sinks[2]!.onToken(2, rowFinishedStop, 100, null, 0);
    say(3, "d", -50);
    assert.deepEqual(choicesOf(await readAll(reader)), ["d", "", "b"]);
  });

  it("ranks candidates that stop strings have cut, and cancels the rest of them", async (t) => {
    const { say, reader, told } = await startRun(t, { choices: 1, candidates: 2, stop: ["!"] });
    say(0, "ab!cd", -0.5);
    say(1, "xy", -1);
    assert.deepEqual(choicesOf(await readAll(reader)), ["ab"]);
    assert.deepEqual(told.at(-1), { method: "cancel", ids: [1], how: "stop" });
  });

  it("returns more choices than its reader has room for", async (t) => {
    const { say, reader } = await startRun(t, { choices: 5, candidates: 6 }, 2);
    for (let i = 0; i < 6; i++) say(i, "abcdef"[i]!, -i - 1);
    const events = await readAll(reader);
    assert.deepEqual(choicesOf(events), ["a", "b", "c", "d", "e"]);
    assert.equal(events.at(-1)?.type, "done");
  });
});

describe("ranking", () => {
  it("puts refused candidates after all others, however likely", () => {
    const bestOf = new BestOf(3);
    for (const choice of [0, 1, 2]) bestOf.keep({ type: "text", choice, text: "abc"[choice]! });
    bestOf.keep({ type: "refusal", choice: 0, reason: "no" });
    for (const choice of [0, 1, 2]) bestOf.keep({ type: "finish", choice, reason: "stop", stopString: null });
    const events = bestOf.likeliest(3, [-0.1, -2, -1]);
    assert.deepEqual(choicesOf(events), ["c", "b", "a"]);
    assert.deepEqual(events.slice(-2), [
      { type: "refusal", choice: 2, reason: "no" },
      { type: "finish", choice: 2, reason: "stop", stopString: null },
    ]);
  });
});

describe("the jobs of a run", () => {
  it("request the prompt's logprobs only for the first choice, and have one priority", async (t) => {
    const { asked } = await startRun(t, { choices: 3, candidates: 3, promptLogprobs: 2, priority: -7 });
    assert.deepEqual(
      asked.map(({ promptLogprobs, priority, choice }) => [promptLogprobs, priority, choice]),
      [
        [2, -7, 0],
        [null, -7, 1],
        [null, -7, 2],
      ],
    );
  });

  it("share one prompt for all choices, which the socket of a model's process carries once", async (t) => {
    const prompt = { kind: "tokens", tokens: new Int32Array(500).fill(1) } as const;
    const { asked, messages } = await startRun(t, { prompt, choices: 64, candidates: 64 });
    assert.equal(new Set(asked.map((job) => job.prompt)).size, 1);
    const [socket, peer] = await socketPair();
    t.after(() => peer.destroy());
    const link = new SocketEndpoint(socket, { peer: "model" });
    t.after(() => link.close());
    link.send("actor", messages[0]);
    assert.ok(socket.bytesWritten < 2 * prompt.tokens.byteLength + 64 * 100, `${socket.bytesWritten} bytes`);
  });
});

describe("what the model reports about the prompt", () => {
  it("is sent to the reader as tokens with their logprobs, none for the first", async (t) => {
    const { say, sinks, asked, reader, vocabulary } = await startRun(t, { promptLogprobs: 1 });
    const prompt = asked[0]!.prompt;
    const [other] = vocabulary.encode("z");
    const records = Array.from(prompt.subarray(1), (_, i) => [-i - 1, 1, other!, -0.5]).flat();
    sinks[0]!.onPrompt(Float32Array.from(records));
    say(0, "x", -1);
    const [event] = await readAll(reader);
    assert.ok(event?.type === "prompt");
    const [begin, ...rest] = tokensOf(event.logprobs, textsOf(vocabulary));
    assert.equal([begin!, ...rest].map(({ bytes }) => Buffer.from(bytes)).join(""), "hello");
    assert.deepEqual(
      rest.map(({ logprob }) => logprob),
      Array.from(prompt.subarray(1), (_, i) => -i - 1),
    );
    assert.deepEqual(begin?.top, []);
    assert.deepEqual(rest[0]?.top, [{ token: "z", bytes: [122], logprob: -0.5 }]);
  });

  it("is sent at once for a prompt of one token, for which there are no logprobs", async (t) => {
    const { say, reader, asked } = await startRun(t, { promptLogprobs: 0, prompt: { kind: "text", text: "a" } });
    say(0, "x", -1);
    const [event] = await readAll(reader);
    const floats = Float32Array.of(asked[0]!.prompt[0]!, 0, 0);
    assert.deepEqual(event, { type: "prompt", logprobs: { count: 1, floats } });
  });

  it("includes the cached tokens of the first choice, which the others share", async (t) => {
    const { say, sinks, reader } = await startRun(t, { choices: 2, candidates: 2 });
    sinks[1]!.onCached(4);
    sinks[0]!.onCached(2);
    say(0, "x", -1);
    say(1, "y", -1);
    const done = (await readAll(reader)).at(-1);
    assert.ok(done?.type === "done" && done.usage.cachedTokens === 2);
  });
});
