// JSON of logprobs: it must equal, byte for byte, the JSON.stringify of the objects that the reference implementation below
// builds.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { GenerateEvent } from "../../../../engines/generation.ts";
import { chatCompletion } from "../../../../http/chat/response.ts";
import { ChatStream } from "../../../../http/chat/stream.ts";
import { textCompletion } from "../../../../http/completions/response.ts";
import { EventText } from "../../../../http/responses/fold/event-text.ts";
import { ResponseFold } from "../../../../http/responses/fold/fold.ts";
import type { Answer } from "../../../../http/shared/answer/answer.ts";
import { type CollectOptions, collectAnswer } from "../../../../http/shared/answer/answer.ts";
import { AnswerMemory } from "../../../../http/shared/answer/answer-memory.ts";
import { jsonPieces } from "../../../../http/shared/answer/json-pieces.ts";
import { done, finish, text } from "../../../fixtures/fakes/fake-inference.ts";
import { recordsOf, type TestAlternative, type TestLogprob, testTokens } from "../../../fixtures/text/logprobs.ts";
import { wholeText } from "../../../fixtures/text/pieces.ts";

// Reference implementation: builds each logprob as an object.

const wireLogprob = (logprob: number): number => (Number.isFinite(logprob) ? logprob : -9999);
const wireAlternative = ({ token, logprob, bytes }: TestAlternative) => ({
  token,
  logprob: wireLogprob(logprob),
  bytes,
});
const wireTokens = (tokens: readonly TestLogprob[]) =>
  tokens.map(({ top, ...own }) => ({ ...wireAlternative(own), top_logprobs: top.map(wireAlternative) }));

type PromptLogprob = Omit<TestLogprob, "logprob"> & { readonly logprob: number | null };

/** Name of a token in a text completion: its bytes if these are not the text's. */
const legacyName = ({ token, bytes }: Pick<TestAlternative, "token" | "bytes">): string =>
  Buffer.from(token).equals(Buffer.from(bytes))
    ? token
    : `bytes:${Buffer.from(bytes).toString("hex").replace(/../g, "\\x$&")}`;

function legacy(prefix: string, prompt: readonly PromptLogprob[], completion: readonly TestLogprob[]): object {
  const tokens = [...prompt, ...completion];
  const starts = (bytes: readonly number[]) => bytes.filter((byte) => (byte & 0xc0) !== 0x80).length;
  let offset = Array.from(prefix).length - prompt.reduce((sum, { bytes }) => sum + starts(bytes), 0);
  return {
    tokens: tokens.map(legacyName),
    token_logprobs: tokens.map(({ logprob }) => (logprob === null ? null : wireLogprob(logprob))),
    top_logprobs: tokens.map(({ logprob, top, ...own }) => {
      if (logprob === null) return null;
      const pairs = top.map((other) => [legacyName(other), wireLogprob(other.logprob)] as const);
      return Object.fromEntries([...pairs, [legacyName(own), wireLogprob(logprob)]]);
    }),
    text_offset: tokens.map(({ bytes }) => {
      const start = offset;
      offset += starts(bytes);
      return Math.max(start, 0);
    }),
  };
}

const logprob = fc.oneof(
  fc.float({ max: 0, noNaN: true }),
  fc.constantFrom(Number.NEGATIVE_INFINITY, Number.NaN, 0, -0, Math.fround(-1e-7), Math.fround(-0.1)),
);
/** Random token bytes: parts of characters, names that look like array indices or object fields, and characters that need an escape. */
const bytes = fc.oneof(
  fc.uint8Array({ maxLength: 6 }),
  fc.string({ unit: "binary", maxLength: 6 }).map((word) => Buffer.from(word)),
  fc
    .constantFrom("1", "10", "__proto__", "toString", '"', "\\", "\n", "\u2028", "😀", " the", "")
    .map((word) => Buffer.from(word)),
);
const alternative: fc.Arbitrary<TestAlternative> = fc.record({ bytes, logprob }).map(({ bytes: some, logprob }) => ({
  token: Buffer.from(some).toString("utf8"),
  bytes: [...some],
  logprob,
}));
const token: fc.Arbitrary<TestLogprob> = fc
  .tuple(alternative, fc.array(alternative, { maxLength: 20 }))
  .map(([own, top]) => ({ ...own, top }));
const tokens = fc.array(token, { maxLength: 12 });
/** Random logprobs, divided among several text events. */
const batches = fc.array(fc.tuple(fc.string({ maxLength: 5 }), tokens), { minLength: 1, maxLength: 6 });

const texts = () => testTokens;
const noLimit = () => new AnswerMemory().lease("client");
const collected = (events: readonly GenerateEvent[], changes: Partial<CollectOptions> = {}): Promise<Answer> => {
  const stream = (async function* () {
    yield events;
  })();
  return collectAnswer(stream, { choiceCount: 2, prefixLength: 0, texts, lease: noLimit(), ...changes });
};
const withoutText = <Body extends { choices: readonly { logprobs: unknown }[] }>(body: Body) =>
  wholeText(jsonPieces(body.choices.map(({ logprobs }) => logprobs)));

describe("logprobs as JSON", () => {
  it("match the reference in a chat completion", async () => {
    await fc.assert(
      fc.asyncProperty(batches, async (said) => {
        const events = said.map(([word, some]) => text(word, 0, some));
        const answer = await collected([...events, text("b", 1), finish(), finish("stop", 1), done]);
        const body = chatCompletion({ id: "c", created: 1, model: "m" }, answer, true);
        const content = wireTokens(said.flatMap(([, some]) => some));
        const expected = [content, []].map((tokens) => ({ content: tokens, refusal: null }));
        assert.equal(withoutText(body), JSON.stringify(expected));
      }),
    );
  });

  it("match the reference in a streamed chat completion, for any batching and length", () => {
    fc.assert(
      fc.property(batches, fc.boolean(), fc.boolean(), (said, isOneBatch, isLong) => {
        const repeated = (some: readonly TestLogprob[]) => (isLong ? new Array(40).fill(some).flat() : some);
        const events = said.map(([word, some]) => text(word, 0, repeated(some)));
        const stream = new ChatStream(
          { id: "c", created: 1, model: "m" },
          { choiceCount: 1, includeUsage: false, hasExtensions: true, texts },
        );
        const batches = isOneBatch ? [events] : events.map((event) => [event]);
        const out = batches.map((batch) => wholeText(stream.encode(batch)));
        const head = '{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","system_fingerprint":"local"';
        const expected = said.map(([word, some], i) => {
          const role = i === 0 ? '"role":"assistant",' : "";
          const logprobs = JSON.stringify({ content: wireTokens(repeated(some)), refusal: null });
          const delta = `{"index":0,"delta":{${role}"content":${JSON.stringify(word)}},"logprobs":${logprobs}`;
          return `data: ${head},"choices":[${delta},"finish_reason":null}]}\n\n`;
        });
        assert.equal(out.join(""), expected.join(""));
      }),
      { numRuns: 30 },
    );
  });

  it("match the reference in a text completion, with the prompt's if echoed", async () => {
    await fc.assert(
      fc.asyncProperty(batches, tokens, fc.string({ unit: "binary" }), async (said, prompt, prefix) => {
        const told: GenerateEvent[] = prompt.length === 0 ? [] : [{ type: "prompt", logprobs: recordsOf(prompt) }];
        const events = [...told, ...said.map(([word, some]) => text(word, 0, some)), text("b", 1)];
        const prefixLength = prefix.length;
        const answer = await collected([...events, finish(), finish("stop", 1), done], { prefixLength });
        const options = {
          id: "c",
          created: 1,
          model: "m",
          prefixes: [prefix],
          shows: { logprobs: true, ids: false, namesAsIds: false },
        };
        const first: PromptLogprob[] = prompt.map((one, i) => (i === 0 ? { ...one, logprob: null } : one));
        const own = said.flatMap(([, some]) => some);
        const body = JSON.parse(wholeText(jsonPieces(textCompletion(options, [answer]))));
        const expected = [own, []].map((completion) => legacy(prefix, first, completion));
        assert.equal(withoutText(textCompletion(options, [answer])), JSON.stringify(expected));
        assert.equal(body.choices[0].text, JSON.parse(JSON.stringify(prefix + said.map(([word]) => word).join(""))));
      }),
    );
  });

  it("match the reference in all events of a response", () => {
    fc.assert(
      fc.property(batches, fc.boolean(), (said, isLong) => {
        const repeated = (some: readonly TestLogprob[]) => (isLong ? new Array(40).fill(some).flat() : some);
        const events = new EventText();
        const head = {
          id: "resp_1",
          createdAt: 1,
          model: "m",
          settings: Buffer.from(`,"tools":[]}`),
          namespacedNames: new Map(),
          includesSources: false,
        };
        const fold = new ResponseFold({
          head,
          events,
          status: "in_progress",
          hasExtensions: true,
          tokenTexts: texts,
          lease: noLimit(),
        });
        for (const [word, some] of said) fold.take(text(word, 0, repeated(some)));
        fold.take(finish());
        fold.take(done);
        const out = events.take().map((chunk) => wholeText(chunk.after(-1)));
        const data = out
          .join("")
          .split("\n\n")
          .slice(0, -1)
          .map((event) => event.replace(/^event: .*\ndata: /, ""));
        const shown = data.map((json) => JSON.parse(json));
        // JSON.stringify must give the same text again, which shows that each list is complete and unchanged.
        assert.deepEqual(
          data,
          shown.map((event) => JSON.stringify(event)),
        );
        const deltas = shown.filter(({ type }) => type === "response.output_text.delta");
        assert.deepEqual(
          deltas.map(({ logprobs }) => logprobs),
          said.map(([, some]) => plain(wireTokens(repeated(some)))),
        );
        const whole = plain(wireTokens(said.flatMap(([, some]) => repeated(some))));
        const [textDone, partDone, itemDone, completed] = shown.slice(-4);
        const part = {
          type: "output_text",
          text: said.map(([word]) => word).join(""),
          annotations: [],
          logprobs: whole,
        };
        assert.deepEqual(textDone.logprobs, whole);
        assert.deepEqual(partDone.part, part);
        assert.deepEqual(itemDone.item.content, [part]);
        assert.deepEqual(completed.response.output, [itemDone.item]);
      }),
      { numRuns: 30 },
    );
  });
});

const plain = (value: unknown): unknown => JSON.parse(JSON.stringify(value));
