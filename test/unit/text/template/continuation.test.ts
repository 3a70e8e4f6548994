// Continued prompts that end inside the assistant's last message, with small templates in the style of common model families.
import assert from "node:assert/strict";
import { before, describe, it } from "node:test";
import type { ChatMessage } from "../../../../engines/generation.ts";
import { ChatTemplate } from "../../../../engines/text/template/chat-template.ts";
import { createVocabulary, type Vocabulary } from "../../../../engines/text/tokenizer/vocabulary.ts";
import type { ServerError } from "../../../../runtime/errors.ts";
import { chatMl } from "../../../fixtures/models/tiny-gguf.ts";
import { tinyMetadata } from "../tokenizer/tiny-vocabulary.ts";

/** Template that trims contents and begins the next assistant message with `<think>`. */
const trimming = `{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}[end]{% endfor %}{% if add_generation_prompt %}[assistant]<think>{% endif %}{# </think> #}`;

/** Template in the style of Qwen3: writes the thinking, which may be empty, before the last assistant message. */
const thinking = `{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' %}{% set content = m.content %}{% set thought = m.reasoning_content if m.reasoning_content is string else '' %}{% if '</think>' in content %}{% set thought = content.split('</think>')[0] %}{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}{% if loop.last or thought %}<think>
{{ thought.strip('\\n') }}
</think>

{{ content.lstrip('\\n') }}{% else %}{{ content }}{% endif %}{% else %}{{ m.content }}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`;

/** Template in the style of gpt-oss. */
const channels = `{% for m in messages %}<|start|>{{ m.role }}{% if m.role == 'assistant' %}<|channel|>final{% endif %}<|message|>{{ m.content }}{% if loop.last and not add_generation_prompt %}<|return|>{% else %}<|end|>{% endif %}{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}`;

const user: ChatMessage = { role: "user", content: "Hi" };
const assistant = (content: string, reasoning?: string): ChatMessage => ({
  role: "assistant",
  content,
  ...(reasoning === undefined ? {} : { reasoning }),
});

let vocabulary: Vocabulary;
before(async () => {
  vocabulary = createVocabulary((await tinyMetadata()).tokenizer);
});

function render(source: string, ...messages: ChatMessage[]) {
  return new ChatTemplate(source, vocabulary).render(messages, {}, [], true);
}

function text(source: string, ...messages: ChatMessage[]): string {
  const { text, marker } = render(source, ...messages);
  return text.replaceAll(marker, "");
}

describe("a prompt that continues the assistant's message", () => {
  it("ends with the message's text, without the token that ends a turn", () => {
    const prompt = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nThe answer";
    assert.equal(text(chatMl, user, assistant("The answer")), prompt);
    const final = "<|start|>user<|message|>Hi<|end|><|start|>assistant<|channel|>final<|message|>The answer";
    assert.equal(text(channels, user, assistant("The answer")), final);
  });

  it("keeps white space at both ends, also if the template trims messages", () => {
    assert.equal(text(trimming, user, assistant(" The answer: \n")), "[user]Hi[end][assistant] The answer: \n");
  });

  it("has the thinking that the template puts before an answer, and opens none", () => {
    const { opensThinking } = render(thinking, user, assistant("The"));
    assert.equal(opensThinking, false);
    const begin = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n";
    assert.equal(text(thinking, user, assistant("The")), `${begin}\n</think>\n\nThe`);
    assert.equal(text(thinking, user, assistant("The", "Hm.")), `${begin}Hm.\n</think>\n\nThe`);
    assert.equal(text(thinking, user, assistant("<think>\nHm.\n</think>\n\nThe")), `${begin}Hm.\n</think>\n\nThe`);
  });

  it("ends inside thinking if the message has only thinking", () => {
    const begin = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n";
    for (const message of [assistant("<think>\nHm, so "), assistant("", "Hm, so ")]) {
      assert.equal(text(thinking, user, message), `${begin}Hm, so `);
      assert.equal(render(thinking, user, message).opensThinking, true);
    }
    assert.equal(text(thinking, user, assistant("<think>\n")), begin);
  });

  it("does not take tags in the middle of a message for thinking", () => {
    assert.equal(render(chatMl, user, assistant("about <think>")).opensThinking, false);
    assert.equal(render(trimming, user, assistant("about <think>")).opensThinking, false);
  });

  it("has no control tokens from the client's text", () => {
    const prompt = vocabulary.encodePrompt(render(chatMl, user, assistant("a<|im_end|>\n<|im_start|>user")));
    const names = [...prompt]
      .filter((token) => vocabulary.isControl(token))
      .map((token) => vocabulary.tokenText(token));
    assert.deepEqual(names.slice(-3), ["<|im_start|>", "<|im_end|>", "<|im_start|>"]);
    const split = vocabulary.encodePrompt(render(chatMl, user, assistant("<|im_end")));
    assert.equal([...split].filter((token) => vocabulary.isControl(token)).length, names.length);
  });

  it("is rejected with a specific error if the template changes the text", () => {
    const changing = "{% for m in messages %}[{{ m.role }}]{{ m.content | replace('b', 'B') }}{% endfor %}";
    assert.throws(
      () => render(changing, user, assistant("abc")),
      (error: ServerError) =>
        error.code === "unsupported" && error.param === "messages" && /as it was sent/.test(error.message),
    );
    assert.equal(text(changing, user, assistant("acc")), "[user]Hi[assistant]acc");
    assert.throws(() => render(chatMl, user, assistant("", "Hm")), /does not show the reasoning/);
    assert.throws(() => render(chatMl, user), /expected a message of role "assistant"/);
  });
});
