import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { MessageChannel } from "node:worker_threads";
import type { AttachedModel } from "../../../../actors/messages.ts";
import { preparePrompt } from "../../../../actors/text-tasks/prepare.ts";
import type { OpenRequest } from "../../../../engines/generation.ts";
import { frameKey } from "../../../../engines/media/media-tokens.ts";
import { toErrorRecord } from "../../../../runtime/errors.ts";
import { createFakeEngine } from "../../../fixtures/fakes/fake-engine.ts";
import { openTextModel } from "../../../fixtures/fakes/inline-tasks.ts";
import { attachment, imageSpec, request } from "../generation/rig.ts";

/** Returns the message with which a model is attached. `probes` changes the tokens that the engine reports for the probe texts. */
async function attached(t: TestContext, probes: (own: readonly Int32Array[]) => AttachedModel["ready"]["probes"]) {
  const { port1, port2 } = new MessageChannel();
  t.after(() => port2.close());
  const message = await attachment(port1, createFakeEngine({ sequenceTokens: 64 }));
  return {
    ...message,
    ready: { ...message.ready, probes: probes((message.ready.probes ?? []).filter((one) => one !== null)) },
  };
}

describe("a text model", () => {
  it("is refused if the engine's tokenizer gives other tokens, with both lists", async (t) => {
    const message = await attached(t, (own) => own.map((tokens) => tokens.map((token) => token + 1)));
    await assert.rejects(openTextModel(message), {
      code: "model_file_invalid",
      message: /the engine's tokenizer gives/,
    });
  });

  it("is refused if the weights are for another number of tokens, with both numbers", async (t) => {
    const { ready, ...message } = await attached(t, () => null);
    const { vocabSize } = ready.card;
    const padded = { ...message, ready: { ...ready, card: { ...ready.card, vocabSize: vocabSize + 1 } } };
    await assert.rejects(openTextModel(padded), {
      code: "model_file_invalid",
      message: new RegExp(`${vocabSize} tokens.*${vocabSize + 1}`),
    });
  });

  it("is accepted if the engine has no tokenizer", async (t) => {
    const model = await openTextModel(await attached(t, () => null));
    assert.ok(model.vocabulary.encode("hello").length > 0);
  });

  it("rejects a prompt that is too long with OpenAI's message and the names of the request's fields", async (t) => {
    const model = await openTextModel(await attached(t, () => null));
    const fields = { prompt: "input", maxTokens: "max_output_tokens" };
    const refusal = (words: number, maxTokens: number | null) => {
      try {
        model.prompt(request({ prompt: { kind: "text", text: "a ".repeat(words) }, maxTokens, fields }));
      } catch (error) {
        return toErrorRecord(error);
      }
      return assert.fail("accepted");
    };
    const limit = model.sequenceTokens;
    const long = refusal(limit, null);
    const { prompt, ...others } = long.lengths!;
    assert.deepEqual([long.code, long.param, others], ["context_length_exceeded", "input", { limit, output: null }]);
    assert.equal(
      long.message,
      `This model's maximum context length is ${limit} tokens. However, you requested ${prompt + 1} tokens ` +
        `(${prompt} in input, 1 in the completion). Reduce the length of input, or set truncate_sequence.`,
    );
    assert.equal(refusal(2, limit).param, "max_output_tokens");
    assert.match(refusal(100 * limit, null).message, /\(at least \d+ in input, 1 in the completion\)/);
  });

  it("truncates a long prompt at its start, and keeps the BOS token", async (t) => {
    const template = "{{ bos_token }}{% for message in messages %}{{ message.content }}{% endfor %}";
    const model = await openTextModel(await attached(t, () => null), template);
    const content = "one two three four five six seven eight nine ten ".repeat(40);
    const prompt = { kind: "chat", messages: [{ role: "user", content }], templateArguments: {} } as const;
    const cut = (changes: Partial<OpenRequest>) =>
      model.prompt(request({ truncatePrompt: true, maxTokens: 14, ...changes })).prompt;
    const { vocabulary } = model;
    const whole = vocabulary.encode(content);
    assert.deepEqual([...cut({ prompt })], [vocabulary.bosToken, ...whole.slice(-49)]);
    const text = { kind: "text", text: content } as const;
    assert.deepEqual([...cut({ prompt: text })], [...whole.slice(-50)], "nothing begins this vocabulary's texts");
    assert.deepEqual([...cut({ prompt: { kind: "tokens", tokens: whole } })], [...whole.slice(-50)]);
  });

  it("accepts a prompt of tokens unchanged, and rejects unknown tokens and too many tokens", async (t) => {
    const model = await openTextModel(await attached(t, () => null));
    const prompt = (...tokens: number[]) => ({ kind: "tokens", tokens: Int32Array.from(tokens) }) as const;
    assert.deepEqual([...model.prompt(request({ prompt: prompt(2, 7, 1) })).prompt], [2, 7, 1]);
    const unknown = { code: "invalid_value", param: "prompt", message: /expected tokens of model/ };
    assert.throws(() => model.prompt(request({ prompt: prompt(1, model.vocabulary.size) })), unknown);
    const long = prompt(...Array(65).fill(3));
    assert.throws(() => model.prompt(request({ prompt: long })), { code: "context_length_exceeded", param: "prompt" });
  });

  it("counts an image each time that a message shows it, and stops where the context is full", async (t) => {
    const message = await attached(t, () => null);
    const asked = async (maxImages: number, mentions: number) => {
      const ready = { ...message.ready, images: { ...imageSpec, maxImages } };
      const model = await openTextModel({ ...message, ready }, "{% for m in messages %}{{ m.content }}{% endfor %}");
      const shown = Array.from({ length: mentions }, () => ({ at: 0, key: "a" }));
      const messages = [{ role: "user", content: "hi", media: shown }] as const;
      const prompt = { kind: "chat", messages, templateArguments: {} } as const;
      const media = [
        { key: "a", digest: "d", isAudio: false, seconds: null, grid: null, tiles: [{ rows: 4, columns: 4 }] },
      ];
      return model.prompt(request({ prompt, maxTokens: 1 }), () => {}, media).tiles?.length;
    };
    assert.equal(await asked(2, 2), 2);
    await assert.rejects(asked(2, 3), { code: "invalid_value", message: /has 3 images or videos; .* at most 2/ });
    // Each image takes 16 tokens; the context has 64.
    const full = { code: "context_length_exceeded", message: /\(at least (?:6[4-9]|7\d|80) in / };
    await assert.rejects(asked(1000, 20), full);
  });

  it("shows each frame of a video after its text", async (t) => {
    const message = await attached(t, () => null);
    const ready = { ...message.ready, images: { ...imageSpec, projector: "internvl" } } as const;
    const model = await openTextModel({ ...message, ready }, "{% for m in messages %}{{ m.content }}{% endfor %}");
    const prompt = {
      kind: "chat",
      messages: [{ role: "user", content: "see hi", media: [{ at: 4, key: "v" }] }],
      templateArguments: {},
    } as const;
    const media = [0, 1.25].map((seconds, i) => {
      return {
        key: frameKey("v", i),
        digest: `${i}`,
        isAudio: false,
        seconds,
        grid: null,
        tiles: [{ rows: 1, columns: 2 }],
      };
    });
    const shown = model.prompt(request({ prompt, maxTokens: 1 }), () => {}, media);
    const { vocabulary } = model;
    const encoded = (text: string, isFirst = false) => [
      ...vocabulary.encodePrompt({ text, marker: "\u0000" }, isFirst),
    ];
    // The texts between two frames are encoded as one text.
    assert.deepEqual(
      [...shown.prompt].map((token) => Math.max(token, -1)),
      [
        ...[...encoded("see Frame1: <img>", true), -1, -1],
        ...[...encoded("</img>\nFrame2: <img>"), -1, -1],
        ...encoded("</img>hi"),
      ],
    );
    assert.equal(shown.tiles?.length, 2);
  });

  it("refuses a suffix if the model has no infill tokens", async (t) => {
    const model = await openTextModel(await attached(t, () => null));
    const prompt = { kind: "text", text: "def f(", suffix: "):" } as const;
    const refusal = { code: "unsupported", param: "suffix", message: /has no infill tokens/ };
    assert.throws(() => model.prompt(request({ prompt })), refusal);
  });

  it("refuses a JSON value as the output if a begun message is continued", async (t) => {
    const model = await openTextModel(await attached(t, () => null));
    const messages = [
      { role: "user", content: "JSON!" },
      { role: "assistant", content: "{" },
    ];
    const prompt = { kind: "chat", messages, templateArguments: {}, continuesLast: true } as const;
    const refusal = { code: "invalid_value", param: "response_format", message: /whole JSON value is the output/ };
    assert.throws(() => preparePrompt(request({ prompt, grammar: { kind: "json" } }), model), refusal);
    const { tokens, answer } = preparePrompt(request({ prompt, maxTokens: 1 }), model);
    assert.equal(model.vocabulary.tokenText(tokens.at(-1) ?? 0), "{");
    assert.equal(answer.startsThinking, false);
  });
});
