import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { MessageChannel } from "node:worker_threads";
import { preparePrompt } from "../../../../actors/text-tasks/prepare.ts";
import type { TextModel } from "../../../../actors/text-tasks/text-model.ts";
import type { OpenRequest } from "../../../../engines/generation.ts";
import { createFakeEngine } from "../../../fixtures/fakes/fake-engine.ts";
import { openTextModel } from "../../../fixtures/fakes/inline-tasks.ts";
import { chatMl, writeTinyModel } from "../../../fixtures/models/tiny-gguf.ts";
import { attachment, request } from "./rig.ts";

const folder = mkdtempSync(join(tmpdir(), "thinking-test-"));
after(() => rmSync(folder, { recursive: true, force: true }));

/**
 * Returns a model with this chat template. If `hasTags` is true, the thinking tags are its last control tokens.
 * Otherwise its vocabulary encodes each tag as several tokens.
 */
async function thinkingModel(chatTemplate: string, hasTags = true): Promise<TextModel> {
  const { port1, port2 } = new MessageChannel();
  const path = join(folder, `${hasTags}-${chatTemplate.length}.gguf`);
  await writeTinyModel(path, {
    seed: 1,
    layers: 1,
    chatTemplate,
    ...(hasTags ? { lastTokens: ["<think>", "</think>"] } : {}),
  });
  const message = await attachment(port1, createFakeEngine());
  port2.close();
  return openTextModel({ ...message, path, ready: { ...message.ready, probes: null } });
}

const chat = (changes: Partial<OpenRequest> = {}) =>
  request({
    prompt: { kind: "chat", messages: [{ role: "user", content: "hi" }], templateArguments: {} },
    reasoningBudget: 16,
    ...changes,
  });

/** Returns a template that renders past thinking and ends the prompt with `end`. */
const template = (end: string) => `${chatMl}{# <think> </think> #}{{ '${end}' }}`;

describe("a limit on thinking", () => {
  it("counts from the opening tag in the output", async () => {
    const text = await thinkingModel(template(""));
    const prepared = preparePrompt(chat(), text);
    const size = text.vocabulary.size;
    const { blanks, ...limit } = prepared.reasoningBudget!;
    assert.ok(blanks.includes(text.vocabulary.encode("\n")[0]!) && !blanks.includes(text.vocabulary.encode("a")[0]!));
    assert.deepEqual(limit, {
      tokens: 16,
      begin: Int32Array.of(size - 2),
      end: Int32Array.of(size - 1),
    });
  });

  it("counts from the first token if the prompt has begun the thinking", async () => {
    const text = await thinkingModel(template("<think>\\n"));
    assert.equal(preparePrompt(chat(), text).reasoningBudget?.begin.length, 0);
  });

  it("counts from the first token if the prompt ends inside thinking that the output continues", async () => {
    const said = "{% for message in messages %}{{ message.reasoning_content or message.content }}{% endfor %}";
    const text = await thinkingModel(`${said}{# <think> </think> #}`);
    const messages = [
      { role: "user", content: "hi" },
      { role: "assistant", content: "<think>one moment" },
    ];
    const prompt = { kind: "chat", messages, templateArguments: {}, continuesLast: true } as const;
    assert.equal(preparePrompt(chat({ prompt }), text).reasoningBudget?.begin.length, 0);
  });

  it("has no effect if the prompt has ended the thinking, or no limit is requested", async () => {
    const text = await thinkingModel(template("<think>\\n\\n</think>\\n\\n"));
    assert.equal(preparePrompt(chat(), text).reasoningBudget, null);
    assert.equal(preparePrompt(chat({ reasoningBudget: null }), text).reasoningBudget, null);
  });

  it("has no effect for a model that does not think, and is rejected if the tags are not tokens", async () => {
    const refusal = { code: "unsupported", param: "reasoning_budget" };
    const [plain, spelt] = [await thinkingModel(chatMl), await thinkingModel(template(""), false)];
    assert.equal(preparePrompt(chat(), plain).reasoningBudget, null);
    assert.throws(() => preparePrompt(chat(), spelt), { ...refusal, message: /has no token <think>/ });
  });

  it("is rejected together with a grammar, which forbids thinking", async () => {
    const text = await thinkingModel(template(""));
    assert.throws(() => preparePrompt(chat({ grammar: { kind: "json" } }), text), {
      code: "invalid_value",
      param: "reasoning_budget",
    });
  });
});

describe("the output of a chat", () => {
  it("is parsed if it may have thinking, or a fixed text before the answer, also without tools", async () => {
    const isParsed = async (chatTemplate: string) =>
      preparePrompt(chat({ reasoningBudget: null }), await thinkingModel(chatTemplate)).answer.isParsed;
    assert.equal(await isParsed(chatMl), false);
    assert.equal(await isParsed(template("")), true);
    assert.equal(await isParsed(`${chatMl}{# >>>all #}>>>`), true);
  });
});
