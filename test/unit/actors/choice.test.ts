import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Choice, type ChoiceOptions } from "../../../actors/agent-loop/choice.ts";
import { rowFinishedLength, rowFinishedStop, rowHasToken } from "../../../actors/messages.ts";
import type { GenerateEvent } from "../../../engines/chat.ts";
import { createVocabulary, type Vocabulary } from "../../../engines/tokenizer/vocabulary.ts";
import { tinyTokenizer } from "./rig.ts";

const vocabulary: Vocabulary = createVocabulary(await tinyTokenizer());

function createChoice(changes: Partial<ChoiceOptions> = {}) {
  const events: GenerateEvent[] = [];
  const choice = new Choice({
    index: 0,
    vocabulary,
    previousToken: null,
    stop: [],
    reportsLogprobs: true,
    check: null,
    emit: (event) => void events.push(event),
    ...changes,
  });
  /** Takes each character as a token; `last` is added to the flags of the last one. */
  const take = (text: string, last = 0, logprob: number | null = null) => {
    const tokens = vocabulary.encode(text);
    const record = logprob === null ? null : Float32Array.of(logprob, 0);
    return Array.from(tokens, (token, i) =>
      choice.take(token, rowHasToken | (i === tokens.length - 1 ? last : 0), record, 0),
    ).at(-1);
  };
  return { choice, events, take };
}

describe("a choice whose text is checked", () => {
  const check = (text: string) => (text === "yes" ? null : `got ${text}`);

  it("is refused before it finishes where it ended of its own accord and is no answer", () => {
    const { choice, events, take } = createChoice({ check });
    take("no");
    choice.take(2, rowFinishedStop, null, 0);
    assert.deepEqual(events.slice(-2), [
      { type: "refusal", choice: 0, reason: "got no" },
      { type: "finish", choice: 0, reason: "stop" },
    ]);
  });

  it("is not refused where it is an answer, with text held back until the end or not", () => {
    for (const stop of [[], ["sx"]]) {
      const { choice, events, take } = createChoice({ check, stop });
      take("yes");
      choice.take(2, rowFinishedStop, null, 0);
      assert.deepEqual(
        events.filter(({ type }) => type !== "text"),
        [{ type: "finish", choice: 0, reason: "stop" }],
      );
    }
  });

  it("is not checked where it was cut off at its length", () => {
    const { events, take } = createChoice({ check });
    take("no", rowFinishedLength);
    assert.ok(events.every(({ type }) => type !== "refusal"));
  });

  it("is checked up to its stop string", () => {
    const { events, take } = createChoice({ check, stop: ["!"] });
    take("yes!");
    assert.ok(events.every(({ type }) => type !== "refusal"));
  });
});

describe("a choice that is ranked", () => {
  it("has the mean logprob of its tokens, which it keeps to itself where nobody asked for them", () => {
    const { choice, events, take } = createChoice({ reportsLogprobs: false });
    take("a", 0, -1);
    take("b", rowFinishedLength, -4);
    assert.equal(choice.meanLogprob, -2.5);
    assert.ok(events.every((event) => !("logprobs" in event)));
  });

  it("comes last where it has no tokens", () => {
    const { choice } = createChoice();
    choice.take(2, rowFinishedStop, null, 0);
    assert.equal(choice.meanLogprob, Number.NEGATIVE_INFINITY);
  });
});
