import assert from "node:assert/strict";
import { test } from "node:test";
import { chooseFormat } from "../../../../engines/text/parse/choose-format.ts";
import { thinkingTags } from "../../../../engines/text/parse/thinking.ts";
import { families, templates } from "./templates.ts";

for (const family of families) {
  test(`a template that writes calls like ${family} gives that format`, () => {
    assert.equal(chooseFormat(templates[family]).name, family);
  });
}

test("the thinking tags are those whose end the template contains", () => {
  assert.deepEqual(thinkingTags("{{ '</think>' }}"), { begin: "<think>", end: "</think>" });
  assert.deepEqual(thinkingTags("{{ '[/THINK]' }}"), { begin: "[THINK]", end: "[/THINK]" });
  assert.equal(thinkingTags("I <think> so"), null);
});

test("the analysis channel is thinking; after it comes the text that follows the prompt", () => {
  const tags = chooseFormat(templates.harmony).thinking;
  assert.deepEqual(tags, { begin: "<|channel|>analysis<|message|>", end: "<|end|><|start|>assistant" });
});

test("a format lists every control token of its calls and its thinking as shown", () => {
  assert.deepEqual(chooseFormat(templates.mistral).shownTokens, [
    "[THINK]",
    "[/THINK]",
    "[TOOL_CALLS]",
    "[CALL_ID]",
    "[ARGS]",
  ]);
  const harmony = chooseFormat(templates.harmony).shownTokens;
  for (const name of ["<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>"]) {
    assert.ok(harmony.includes(name), name);
  }
});

test("the text that opens the first call begins with the trigger", () => {
  for (const family of families) {
    const { trigger, open } = chooseFormat(templates[family]).syntax;
    assert.ok(open.startsWith(trigger ?? ""), family);
  }
});
