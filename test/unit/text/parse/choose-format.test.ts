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

test("thinking is between the tags of which the template holds the end", () => {
  assert.deepEqual(thinkingTags("{{ '</think>' }}"), { begin: "<think>", end: "</think>" });
  assert.deepEqual(thinkingTags("{{ '[/THINK]' }}"), { begin: "[THINK]", end: "[/THINK]" });
  assert.equal(thinkingTags("I <think> so"), null);
});

test("the analysis channel is thinking, and after it comes what comes after the prompt", () => {
  const tags = chooseFormat(templates.harmony).thinking;
  assert.deepEqual(tags, { begin: "<|channel|>analysis<|message|>", end: "<|end|><|start|>assistant" });
});

test("a format asks to see every control token that its calls and its thinking are written with", () => {
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

test("what opens the first call begins with the trigger", () => {
  for (const family of families) {
    const { trigger, open } = chooseFormat(templates[family]).syntax;
    assert.ok(open.startsWith(trigger ?? ""), family);
  }
});
