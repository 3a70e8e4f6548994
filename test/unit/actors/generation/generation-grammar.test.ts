import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { MessageChannel } from "node:worker_threads";
import { preparePrompt } from "../../../../actors/text-tasks/prepare.ts";
import type { TextModel } from "../../../../actors/text-tasks/text-model.ts";
import type { OutputGrammar } from "../../../../engines/generation.ts";
import { createFakeEngine } from "../../../fixtures/fakes/fake-engine.ts";
import { openTextModel } from "../../../fixtures/fakes/inline-tasks.ts";
import { writeTinyModel } from "../../../fixtures/models/tiny-gguf.ts";
import { attachment, request } from "./rig.ts";

const folder = mkdtempSync(join(tmpdir(), "grammar-test-"));
after(() => rmSync(folder, { recursive: true, force: true }));

async function tinyText(): Promise<TextModel> {
  const { port1, port2 } = new MessageChannel();
  const path = join(folder, "tiny.gguf");
  await writeTinyModel(path, { seed: 1, layers: 1 });
  const message = await attachment(port1, createFakeEngine({ sequenceTokens: 1024 }));
  port2.close();
  return openTextModel({ ...message, path, ready: { ...message.ready, probes: null } });
}

describe("a rejected grammar", () => {
  const cases: readonly (readonly [field: string, good: OutputGrammar, bad: OutputGrammar])[] = [
    ["grammar", { kind: "regex", pattern: "a" }, { kind: "regex", pattern: "(" }],
    [
      "response_format",
      { kind: "json_schema", schema: true, field: "response_format" },
      { kind: "json_schema", schema: 5, field: "response_format" },
    ],
    [
      "grammar",
      { kind: "json_schema", schema: true, field: "grammar" },
      { kind: "json_schema", schema: 5, field: "grammar" },
    ],
  ];
  for (const [param, good, bad] of cases) {
    it(`causes an error that names ${param} for ${good.kind}, here and at the model's place`, async () => {
      const text = await tinyText();
      assert.throws(() => preparePrompt(request({ grammar: bad, ignoreEos: false }), text), {
        code: "invalid_value",
        param,
      });
      assert.equal(preparePrompt(request({ grammar: good, ignoreEos: false }), text).grammar?.param, param);
    });
  }
});

describe("an output that must not end", () => {
  it("is rejected together with any grammar, also that of a strict tool, because a grammar ends", async () => {
    const text = await tinyText();
    const refusal = { code: "invalid_value", param: "ignore_eos" };
    const prompt = { kind: "chat", messages: [{ role: "user", content: "hi" }], templateArguments: {} } as const;
    const tool = { name: "look", description: null, parameters: null };
    const tools = (strict: boolean) => ({ specs: [{ ...tool, strict }], required: false, parallel: true });
    assert.throws(() => preparePrompt(request({ prompt, tools: tools(true) }), text), refusal);
    assert.throws(() => preparePrompt(request({ grammar: { kind: "json" } }), text), refusal);
    assert.equal(preparePrompt(request({ prompt, tools: tools(false) }), text).grammar, null);
  });
});
