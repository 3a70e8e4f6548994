import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { ChatTemplates } from "../../../../actors/text-tasks/chat-templates.ts";
import type { ModelMetadata } from "../../../../engines/files/gguf/metadata.ts";
import { createVocabulary } from "../../../../engines/text/tokenizer/vocabulary.ts";
import { tinyTokenizer } from "../generation/rig.ts";

const tokenizer = await tinyTokenizer();
const vocabulary = createVocabulary(tokenizer);

const sayingWhich = (name: string) =>
  `${name}:{% for message in messages %}{{ message.content }}{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}`;

function metadataOf(templates: Readonly<Record<string, string>>): ModelMetadata {
  // Without tokens, because a known family of tokens would select a built-in template.
  const known = { ...tokenizer, tokens: [] };
  return { chatTemplates: new Map(Object.entries(templates)), tokenizer: known } as unknown as ModelMetadata;
}

async function open(templates: Readonly<Record<string, string>>) {
  const opened = ChatTemplates.open(null, metadataOf(templates), vocabulary);
  const tool = { name: "look", description: null, parameters: null, strict: false };
  return (hasTools: boolean) =>
    opened.for(hasTools).template.render([{ role: "user", content: "hi" }], {}, hasTools ? [tool] : []).text;
}

describe("a model's chat templates", () => {
  it("include a second one for chats with tools, if the file has it", async () => {
    const render = await open({ default: sayingWhich("usual"), tool_use: sayingWhich("with tools") });
    assert.match(render(false), /^usual:hi/);
    assert.match(render(true), /^with tools:hi.*look/);
  });

  it("are one for all chats if the second is missing or cannot be compiled", async () => {
    const broken = { default: sayingWhich("usual"), tool_use: "{% for %}" };
    for (const templates of [{ default: sayingWhich("usual") }, broken]) {
      assert.match((await open(templates))(true), /^usual:hi/);
    }
  });

  it("reuse the results of earlier test renders", () => {
    const metadata = metadataOf({ default: sayingWhich("usual"), tool_use: sayingWhich("with tools") });
    const { usual, withTools } = ChatTemplates.open(null, metadata, vocabulary).capabilities;
    assert.ok(usual?.works && usual.takesSystem && withTools?.works);
    const capabilities = { usual: { ...usual, takesSystem: false }, withTools };
    assert.deepEqual(ChatTemplates.open(null, metadata, vocabulary, capabilities).capabilities, capabilities);
  });

  it("are missing if the file has none, which only chats report", async () => {
    const render = await open({});
    assert.throws(() => render(false), { code: "unsupported" });
  });
});
