import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Choice, type ChoiceOptions } from "../../../../../actors/generation/output/choice.ts";
import type { OutputPlan } from "../../../../../actors/generation/output/output-plan.ts";
import { rowFinishedLength, rowFinishedStop, rowHasToken } from "../../../../../actors/messages.ts";
import type { GenerateEvent } from "../../../../../engines/generation.ts";
import type { OutputParser, OutputPart } from "../../../../../engines/text/parse/tool-format.ts";
import { createVocabulary, type Vocabulary } from "../../../../../engines/text/tokenizer/vocabulary.ts";
import { settled } from "../../../../fixtures/fakes/fake-clock.ts";
import { reportedTokens, textsOf } from "../../../../fixtures/text/logprobs.ts";
import { tinyTokenizer } from "../rig.ts";

const vocabulary: Vocabulary = createVocabulary(await tinyTokenizer());

const plain: OutputPlan = {
  createParser: null,
  shownTokens: new Set(),
  endsWithCall: false,
  checks: null,
  writeCall: (name, args) => `<call>${name}${args}</call>`,
};

const texts = textsOf(vocabulary);
/** Returns the letters of the tokens whose logprobs are reported. */
const lettersOf = (events: readonly GenerateEvent[]) =>
  reportedTokens(events, texts)
    .map(({ token }) => token)
    .join("");

function createChoice({
  answer,
  ...changes
}: Partial<Omit<ChoiceOptions, "answer">> & { answer?: Partial<OutputPlan> } = {}) {
  const events: GenerateEvent[] = [];
  const ends = { stops: 0, ends: 0 };
  const choice = new Choice({
    index: 0,
    texts: vocabulary,
    previousToken: null,
    stop: [],
    minTokens: 0,
    isEmpty: false,
    reportsLogprobs: true,
    answer: { ...plain, ...answer },
    check: async () => null,
    emit: (event) => void events.push(event),
    onStop: () => void ends.stops++,
    onEnd: () => void ends.ends++,
    ...changes,
  });
  /** Passes the text to the choice with one token per character. Adds `last` to the flags of the last token. */
  const take = (text: string, last = 0, logprob: number | null = null) => {
    const tokens = vocabulary.encode(text);
    const record = logprob === null ? null : Float32Array.of(logprob, 0);
    tokens.forEach((token, i) => {
      choice.take(token, rowHasToken | (i === tokens.length - 1 ? last : 0), record, 0);
    });
  };
  return { choice, events, ends, take };
}

describe("the minimum number of tokens", () => {
  it("makes a stop string ordinary text if it begins before the minimum", () => {
    for (const [minTokens, expected] of [
      [0, "a"],
      [2, "a###b"],
      [1, "a"],
      [4, "a###b"],
    ] as const) {
      const { take, events } = createChoice({ stop: ["###"], minTokens });
      take("a###b###");
      const content = events.map((event) => (event.type === "text" ? event.text : "")).join("");
      const { type, ...end } = events.at(-1)!;
      assert.equal(content, expected, String(minTokens));
      assert.deepEqual([type, end], ["finish", { choice: 0, reason: "stop", stopString: "###" }]);
    }
  });
});

/** Returns options that select which output is validated: content, calls or both. */
function checking(what: { readonly content?: boolean; readonly calls?: boolean }) {
  return { checks: { asked: new Uint8Array(0), content: false, calls: false, ...what } };
}

describe("a choice whose text is validated", () => {
  const answer = checking({ content: true });
  const check = async (text: string) => (text === "yes" ? null : `got ${text}`);

  it("is refused before it finishes if the model ended it and it is invalid", async () => {
    const { choice, events, ends, take } = createChoice({ answer, check });
    take("no");
    choice.take(2, rowFinishedStop, null, 0);
    assert.equal(ends.ends, 0, "not before it is checked");
    await settled();
    assert.deepEqual(ends, { stops: 0, ends: 1 });
    assert.deepEqual(events.slice(-2), [
      { type: "refusal", choice: 0, reason: "got no" },
      { type: "finish", choice: 0, reason: "stop", stopString: null },
    ]);
  });

  it("is not refused if it is valid, with text held back until the end or not", async () => {
    for (const stop of [[], ["sx"]]) {
      const { choice, events, take } = createChoice({ answer, check, stop });
      take("yes");
      choice.take(2, rowFinishedStop, null, 0);
      await settled();
      assert.deepEqual(
        events.filter(({ type }) => type !== "text"),
        [{ type: "finish", choice: 0, reason: "stop", stopString: null }],
      );
    }
  });

  it("is not validated if the token limit cut it off", async () => {
    const { events, take } = createChoice({ answer, check });
    take("no", rowFinishedLength);
    await settled();
    assert.ok(events.every(({ type }) => type !== "refusal"));
  });

  it("is validated up to its stop string, at which the model is stopped at once", async () => {
    const { events, ends, take } = createChoice({ answer, check, stop: ["!"] });
    take("yes!");
    assert.deepEqual(ends, { stops: 1, ends: 0 });
    take("more that was on its way");
    await settled();
    assert.deepEqual(ends, { stops: 1, ends: 1 });
    assert.deepEqual(events.at(-1), { type: "finish", choice: 0, reason: "stop", stopString: "!" });
    assert.ok(events.every(({ type }) => type !== "refusal"));
  });
});

describe("a choice that is ranked", () => {
  it("has the mean logprob of its tokens, which it keeps to itself if they were not requested", () => {
    const { choice, events, take } = createChoice({ reportsLogprobs: false });
    take("a", 0, -1);
    take("b", rowFinishedLength, -4);
    assert.equal(choice.meanLogprob, -2.5);
    assert.ok(events.every((event) => !("logprobs" in event)));
  });

  it("comes last if it has no tokens", () => {
    const { choice } = createChoice();
    choice.take(2, rowFinishedStop, null, 0);
    assert.equal(choice.meanLogprob, Number.NEGATIVE_INFINITY);
  });
});

/** Parses capital letters as thinking, text in brackets as the arguments of a call, and all other text as content. */
class ToyParser implements OutputParser {
  isThinking: boolean;
  #at = 0;
  #raw = "";

  constructor(isThinking = false) {
    this.isThinking = isThinking;
  }

  push(text: string): OutputPart[] {
    return [...text].flatMap((character) => this.#read(character));
  }

  finish(isCut: boolean): OutputPart[] {
    if (this.#raw === "") return [];
    return [isCut ? { kind: "call-cut" } : { kind: "call-failed", text: this.#raw }];
  }

  #read(text: string): OutputPart[] {
    const at = this.#at++;
    if (text === "[") {
      this.isThinking = false;
      this.#raw = text;
      return [{ kind: "call", name: "toy", id: "same" }];
    }
    if (this.#raw !== "") {
      this.#raw = text === "]" ? "" : this.#raw + text;
      return text === "]" ? [{ kind: "call-end" }] : [{ kind: "arguments", text }];
    }
    this.isThinking = text >= "A" && text <= "Z";
    return [{ kind: this.isThinking ? "reasoning" : "content", text, at }];
  }
}

describe("a choice whose text is parsed", () => {
  const parsed = { createParser: () => new ToyParser() };
  const merged = (events: readonly GenerateEvent[]) => {
    const out: string[] = [];
    for (const event of events) {
      out.push("text" in event ? `${event.type}:${event.text}` : event.type);
    }
    return out.join(" ");
  };

  it("gives thinking, content and calls as events of their own, and ends with tool_calls after a whole one", () => {
    const { choice, events, take } = createChoice({ answer: parsed });
    take("Tc[1]");
    choice.take(2, rowFinishedStop, null, 0);
    assert.equal(merged(events), "reasoning:T text:c tool_call tool_arguments:1 tool_call_end finish");
    assert.deepEqual(events.at(-1), { type: "finish", choice: 0, reason: "tool_calls", stopString: null });
    assert.equal(choice.tokenCount, 5);
  });

  it("counts the tokens of thinking and of its tags, also if the prompt has begun it", () => {
    const begun = createChoice({ answer: { createParser: () => new ToyParser(true) } });
    begun.take("ABcd");
    // "AB" is thinking. The token "c" ends the thinking, so it counts as the closing tag, which is a reasoning token.
    assert.equal(begun.choice.reasoningTokenCount, 3);
    const calling = createChoice({ answer: parsed });
    calling.take("A[123456]");
    assert.equal(calling.choice.reasoningTokenCount, 2);
  });

  it("gives every call a separate id, whatever ids the model writes", () => {
    const { events, take } = createChoice({ answer: parsed });
    take("[1][2]");
    const ids = events.flatMap((event) => (event.type === "tool_call" ? [event.id] : []));
    assert.equal(ids[0], "same");
    assert.match(ids[1] ?? "", /^call_[0-9a-f]{24}$/);
  });

  it("keeps the beginning of a call that the token limit cuts, and says that the length ended it", () => {
    const { events, take } = createChoice({ answer: parsed });
    take("[12", rowFinishedLength);
    assert.deepEqual(events.slice(-2), [
      { type: "tool_call_cut", choice: 0, call: 0 },
      { type: "finish", choice: 0, reason: "length", stopString: null },
    ]);
  });

  it("returns a call that the model has not ended as text", () => {
    const { choice, events, take } = createChoice({ answer: parsed });
    take("[12");
    choice.take(2, rowFinishedStop, null, 0);
    assert.deepEqual(events.slice(-2), [
      { type: "tool_call_failed", choice: 0, call: 0, text: "[12" },
      { type: "finish", choice: 0, reason: "stop", stopString: null },
    ]);
  });

  it("reports no logprobs of text that is left out because the token limit has cut it", () => {
    const createParser = () => ({
      isThinking: false,
      push: (text: string): OutputPart[] => (text === "<" ? [] : [{ kind: "content", text, at: 0 }]),
      finish: (): OutputPart[] => [{ kind: "cut" }],
    });
    const { events, take } = createChoice({ answer: { createParser } });
    take("a", 0, -1);
    take("<", rowFinishedLength, -1);
    const reported = events.flatMap((event) => (event.type === "text" ? [`${event.text}:${lettersOf([event])}`] : []));
    assert.deepEqual(reported, ["a:a"]);
  });

  it("ends with the first call if only one is allowed", () => {
    const { events, ends, take } = createChoice({ answer: { ...parsed, endsWithCall: true } });
    take("[1]");
    assert.deepEqual(ends, { stops: 1, ends: 1 });
    assert.deepEqual(events.at(-1), { type: "finish", choice: 0, reason: "tool_calls", stopString: null });
  });

  it("gives no second call of one piece of text if only one is allowed", () => {
    const twice: OutputPart[] = ["1", "2"].flatMap((text) => [
      { kind: "call", name: "toy", id: null },
      { kind: "arguments", text },
      { kind: "call-end" },
    ]);
    const createParser = () => ({ isThinking: false, push: () => twice, finish: () => [] });
    const { events, take } = createChoice({ answer: { createParser, endsWithCall: true } });
    take("x");
    assert.equal(merged(events), "tool_call tool_arguments:1 tool_call_end finish");
  });

  const checked = { ...parsed, ...checking({ calls: true }) };
  const oneIsRight = async (args: string) => (args === "1" ? null : "not 1");

  it("withdraws a call whose arguments its tool does not accept", async () => {
    const { choice, events, take } = createChoice({ answer: checked, check: oneIsRight });
    take("[1][2]");
    choice.take(2, rowFinishedStop, null, 0);
    await settled();
    assert.deepEqual(
      events.filter(({ type }) => type === "tool_call_end" || type === "tool_call_failed"),
      [
        { type: "tool_call_end", choice: 0, call: 0 },
        { type: "tool_call_failed", choice: 0, call: 1, text: "<call>toy2</call>" },
      ],
    );
  });

  it("emits what followed a call once the call is validated, in order", async () => {
    const { events, take } = createChoice({ answer: checked, check: oneIsRight });
    take("a[1]b[2]c");
    assert.equal(merged(events), "text:a tool_call tool_arguments:1");
    await settled();
    take("d", rowFinishedLength);
    await settled();
    const calls = "tool_call tool_arguments:1 tool_call_end text:b tool_call tool_arguments:2";
    assert.equal(merged(events), `text:a ${calls} tool_call_failed:<call>toy2</call> text:c text:d finish`);
  });

  it("continues after an invalid call if only one is allowed", async () => {
    const answer = { ...checked, endsWithCall: true };
    const { events, ends, take } = createChoice({ answer, check: oneIsRight });
    take("[2]a[1]b");
    assert.deepEqual(ends, { stops: 0, ends: 0 });
    await settled();
    assert.deepEqual(ends, { stops: 1, ends: 1 });
    const failed = "tool_call tool_arguments:2 tool_call_failed:<call>toy2</call> text:a";
    assert.equal(merged(events), `${failed} tool_call tool_arguments:1 tool_call_end finish`);
  });

  it("reports the logprobs of the content alone", () => {
    const { events, take } = createChoice({ answer: parsed });
    take("Aa[b]c", rowFinishedLength, -1);
    const reported = events.flatMap((event) => (event.type === "text" ? [`${event.text}:${lettersOf([event])}`] : []));
    assert.deepEqual(reported, ["a:a", "c:c"]);
    assert.ok(events.every((event) => event.type === "text" || !("logprobs" in event)));
  });

  it("reports the logprobs of content that waited for the check of a call", async () => {
    const { events, take } = createChoice({ answer: checked, check: oneIsRight });
    take("a[1]b[1]c[1", rowFinishedLength, -1);
    await settled();
    assert.equal(lettersOf(events), "abc");
  });

  it("reports no logprobs of thinking and calls at the end", () => {
    for (const text of ["ABC", "ab[12"]) {
      const { events, take } = createChoice({ answer: parsed });
      take(text, rowFinishedLength, -1);
      assert.equal(lettersOf(events), text.replaceAll(/[^ab]/g, ""));
    }
  });

  it("finishes with tool_calls if a stop string ends it after a complete call", () => {
    const { events, take } = createChoice({ answer: parsed, stop: ["!"] });
    take("[1]!");
    assert.deepEqual(events.at(-1), { type: "finish", choice: 0, reason: "tool_calls", stopString: "!" });
  });

  it("is not validated if it has a call", async () => {
    const answer = { ...parsed, ...checking({ content: true }) };
    const { choice, events, take } = createChoice({ answer, check: async () => "never right" });
    take("[1]");
    choice.take(2, rowFinishedStop, null, 0);
    await settled();
    assert.ok(events.every(({ type }) => type !== "refusal"));
  });
});

describe("a choice that meets a stop string", () => {
  it("names it, and reports no logprobs of its tokens", () => {
    const { events, ends, take } = createChoice({ stop: ["!!"] });
    take("a!!", 0, -1);
    assert.deepEqual(ends, { stops: 1, ends: 1 });
    assert.deepEqual(events.at(-1), { type: "finish", choice: 0, reason: "stop", stopString: "!!" });
    assert.equal(lettersOf(events), "a");
  });
});
