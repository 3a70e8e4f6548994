import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { before, describe, it } from "node:test";
import fc from "fast-check";
import type { TokenizerMetadata } from "../../../../engines/files/gguf/metadata.ts";
import type { ChatMessage } from "../../../../engines/generation.ts";
import { ChatTemplate } from "../../../../engines/text/template/chat-template.ts";
import { loadTemplateOverride, modelTemplateSource } from "../../../../engines/text/template/template-source.ts";
import { createVocabulary, type Vocabulary } from "../../../../engines/text/tokenizer/vocabulary.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { chatMl, tinyControlTokens } from "../../../fixtures/models/tiny-gguf.ts";
import { inTemporaryFolder, tinyMetadata } from "../tokenizer/tiny-vocabulary.ts";

const user = (content: string): ChatMessage => ({ role: "user", content });
const system = (content: string): ChatMessage => ({ role: "system", content });
const assistant = (content: string): ChatMessage => ({ role: "assistant", content });

let tokenizer: TokenizerMetadata;
let vocabulary: Vocabulary;
before(async () => {
  tokenizer = (await tinyMetadata()).tokenizer;
  vocabulary = createVocabulary(tokenizer);
});

function render(source: string, messages: readonly ChatMessage[], args = {}): string {
  return new ChatTemplate(source, vocabulary).render(messages, args).text;
}

function isError(code: string, words: RegExp): (error: unknown) => boolean {
  return (error) => error instanceof ServerError && error.code === code && words.test(error.message);
}

describe("chat template", () => {
  it("renders ChatML up to the assistant's turn", () => {
    assert.equal(
      render(chatMl, [system("Be brief."), user("Hi"), assistant("Hello"), user("Bye")]),
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n" +
        "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n",
    );
  });

  it("puts system text before the user's if the template has no system role", () => {
    const source =
      "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" +
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";
    assert.equal(
      render(source, [system("A"), system("B"), user("C"), assistant("D")]),
      "[user]A\n\nB\n\nC[assistant]D",
    );
    assert.equal(render(source, [user("C"), system("A")]), "[user]C[user]A");
  });

  it("has the client's variables, whose text never becomes control tokens", () => {
    const source =
      "{{ bos_token }}{% if mode == 'user' %}user mode{% endif %}{{ persona.name }}{{ left }}{{ right }}" +
      "{{ notes | join(' ') }}{% for m in messages %}{{ m.content }}{% endfor %}";
    const template = new ChatTemplate(source, vocabulary);
    const name = "<|im_end|>";
    const variables = { mode: "user", persona: { name }, left: "<|im_", right: "end|>", notes: [name, 1, null] };
    const { text, marker } = template.render([user("hi")], { variables });
    assert.ok(text.includes("user mode") && text.endsWith("hi"), text);
    assert.ok(!text.includes(name), text);
    assert.ok(text.replaceAll(marker, "").includes(`user mode${name}${name}${name} 1`), text);
    const controls = [...vocabulary.encodePrompt({ text, marker })].filter((token) => vocabulary.isControl(token));
    assert.equal(controls.length, vocabulary.bosToken === null ? 0 : 1);
  });

  it("does so too if the template silently drops system text", () => {
    const source =
      "{% for m in messages %}{% if m.role != 'system' %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}";
    assert.equal(render(source, [system("A"), user("C")]), "[user]A\n\nC");
  });

  it("gives content as parts to a template that reads only parts", () => {
    const source = "{% for m in messages %}{% for part in m.content %}{{ part.text }};{% endfor %}{% endfor %}";
    assert.equal(render(source, [system("A"), user("B")]), "A;B;");
  });

  it("gives content as text to a template that reads both", () => {
    const source = "{% for m in messages %}{% if m.content is string %}text{% endif %}{{ m.content }}{% endfor %}";
    assert.equal(render(source, [user("B")]), "textB");
  });

  it("renders a developer message as system unless the template has the role", () => {
    assert.match(render(chatMl, [{ role: "developer", content: "A" }, user("B")]), /^<\|im_start\|>system\nA/);
    assert.match(
      render(`${chatMl}{# developer #}`, [{ role: "developer", content: "A" }]),
      /^<\|im_start\|>developer\nA/,
    );
  });

  it("passes tools as an empty list only if the template fails without", () => {
    const looping = "{% for tool in tools %}{{ tool }}{% endfor %}{{ messages[0].content }}";
    const asking = "{% if tools is defined %}Tools:{% endif %}{{ messages[0].content }}";
    assert.equal(render(looping, [user("A")]), "A");
    assert.equal(render(asking, [user("A")]), "A");
  });

  it("passes the request's reasoning settings to the template", () => {
    const source =
      "{{ messages[0].content }}{{ enable_thinking }}{{ reasoning_effort }}{{ enable_thinking is defined }}";
    assert.equal(render(source, [user("A")], { enableThinking: false, reasoningEffort: "low" }), "Afalselowtrue");
    assert.match(render(source, [user("A")]), /false$/);
  });

  it("provides the date, and the names of the BOS and EOS tokens", () => {
    const source = "{{ bos_token }}{{ strftime_now('%Y') }}{{ messages[0].content }}{{ eos_token }}";
    assert.equal(render(source, [user("A")]), `<|im_start|>${new Date().getFullYear()}A<|im_end|>`);
  });

  it("renders dictionaries with integer keys, in order and by key", () => {
    const source =
      "{%- set steps = {\n 512: 128,\n 16: 4,\n 0: 0 } -%}{% set ns = namespace(found=none) %}{% for k, v in steps | dictsort %}{{ k }}:{{ v }} {% if ns.found is none and 100 <= k %}{% set ns.found = v %}{% endif %}{% endfor %}{{ ns.found }} {{ steps[16] }}{{ messages[0].content }}";
    assert.equal(render(source, [user("A")]), "0:0 16:4 512:128 128 4A");
  });

  it("blames the messages if the template refuses them, with the template's message", () => {
    const source =
      "{{ messages[0].content }}{% if messages|length > 1 %}{{ raise_exception('one at a time') }}{% endif %}";
    const failure = isError("invalid_value", /one at a time/);
    assert.throws(() => render(source, [user("A"), assistant("B")]), failure);
  });

  it("blames the template if it cannot render anything, or cannot be compiled", () => {
    assert.throws(() => render("{{ undefined_function() }}", [user("A")]), isError("unsupported", /chat_template/));
    assert.throws(() => render("{% for %}", [user("A")]), isError("model_file_invalid", /cannot be compiled/));
  });
});

describe("user text in a prompt", () => {
  const controlTokensOf = (source: string, messages: readonly ChatMessage[]) => {
    const tokens = vocabulary.encodePrompt(new ChatTemplate(source, vocabulary).render(messages, {}));
    return {
      control: [...tokens].filter((token) => vocabulary.isControl(token)).map((token) => vocabulary.tokenText(token)),
      text: Buffer.concat([...tokens].map((token) => vocabulary.piece(token))).toString("utf8"),
    };
  };

  const hostile = fc
    .array(
      fc.oneof(
        fc.constantFrom(
          ...tinyControlTokens,
          "<|im_",
          "end|>",
          "<",
          "|>",
          "<|",
          "im_end",
          "\ufdd0",
          "\ufdd1",
          "\n",
          "hi",
        ),
        fc.string({ unit: "grapheme", maxLength: 3 }),
      ),
      { maxLength: 8 },
    )
    .map((parts) => parts.join(""));

  it("never becomes a control token, and stays unchanged", () => {
    const source = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}";
    fc.assert(
      fc.property(hostile, hostile, (first, second) => {
        const { control, text } = controlTokensOf(source, [user(first), assistant(second)]);
        assert.deepEqual(control, ["<|im_start|>", "<|im_end|>", "<|im_start|>", "<|im_end|>"]);
        assert.equal(text, `user\n${first}assistant\n${second}`);
      }),
    );
  });

  it("never becomes one if it contains candidate markers, and is refused if it contains all of them", () => {
    const codes = (from: number, to: number) =>
      Array.from({ length: to - from + 1 }, (_, i) => String.fromCharCode(from + i));
    const noncharacters = `${codes(0xfdd0, 0xfdef).join("")}<|im_end|>`;
    assert.deepEqual(controlTokensOf("{{ messages[0].content }}", [user(noncharacters)]), {
      control: [],
      text: noncharacters,
    });
    const all = noncharacters + codes(0xe000, 0xf8ff).join("");
    assert.throws(() => render(chatMl, [user(all)]), isError("invalid_value", /remove at least one of them/));
  });

  it("never becomes one together with its neighbours", () => {
    const glued = "{{ messages[0].content }}{{ messages[1].content }}end|>{{ messages[2].content }}";
    fc.assert(
      fc.property(hostile, hostile, hostile, (first, second, third) => {
        const { control, text } = controlTokensOf(glued, [user(first), assistant(second), user(third)]);
        assert.deepEqual(control, []);
        assert.equal(text, `${first}${second}end|>${third}`);
      }),
    );
    const around = "<|{{ messages[0].content }}|>";
    assert.deepEqual(controlTokensOf(around, [user("im_end")]).control, []);
  });

  it("never becomes one if the template removes words from it, or splits it", () => {
    const removing = "{{ messages[0].content.replace('/no_think', '') | replace(\"/think\", '') | trim }}";
    for (const text of [
      "<|im_/thinkend|>",
      "<|/thi/no_thinknkim_end|>",
      "<|im_/think/no_thinkend/think|>",
      "<|im_end|/think>",
    ]) {
      assert.deepEqual(controlTokensOf(removing, [user(text)]).control, [], text);
    }
    const cutting = "{% set end = '</think>' %}{{ messages[0].content.split(end) | join('') }}";
    assert.deepEqual(controlTokensOf(cutting, [user("<|im_</think>end|>")]).control, []);
    const trimming = "{{ messages[0].content | trim }}{{ messages[0].name | trim }}";
    const [split] = [{ role: "user", content: "<|im_ ", name: " end|>" }];
    assert.deepEqual(controlTokensOf(trimming, [split as ChatMessage]).control, []);
  });

  it("stays readable for a template that looks for words, if they join nothing", () => {
    const source =
      "{{ messages[0].content.split('</think>')[-1].replace('/think', '').strip() }}{{ '!' if '</think>' in messages[0].content }}";
    const text = (content: string) => new ChatTemplate(source, vocabulary).render([user(content)], {}).text;
    assert.equal(text("<think>Hm.</think>Yes /think"), "Yes!");
  });

  it("never becomes one as a role or a name, unless the role is a known one", async () => {
    const tokens = [...tokenizer.tokens, "<|user|>", "<|end|>"];
    const types = tokens.map((_, token) => (token < 3 || token >= 512 ? 3 : 1));
    const phi = createVocabulary({ ...tokenizer, tokens, types });
    const source = "{% for m in messages %}<|{{ m.role }}|>{{ m.name }}{{ m.content }}{% endfor %}";
    const encode = (message: ChatMessage) =>
      [...phi.encodePrompt(new ChatTemplate(source, phi).render([message], {}))].filter((token) =>
        phi.isControl(token),
      );
    assert.deepEqual(encode({ role: "user", content: "A", name: "<|end|>" }), [512]);
    assert.deepEqual(encode({ role: "end", content: "A", name: "B" }), []);
  });
});

describe("the source of a chat template", () => {
  it("is the model file's default, or its only one", () => {
    const templates = new Map([
      ["tool_use", "T"],
      ["default", "D"],
    ]);
    assert.equal(modelTemplateSource(templates, tokenizer), "D");
    templates.delete("default");
    assert.equal(modelTemplateSource(templates, tokenizer), "T");
  });

  it("is ChatML if the file has none and the vocabulary has its tokens", () => {
    const source = modelTemplateSource(new Map(), tokenizer);
    assert.equal(render(source, [user("A")]), render(chatMl, [user("A")]));
    assert.throws(() => modelTemplateSource(new Map(), { tokens: ["a"] }), isError("unsupported", /chat_template/));
  });

  it("is a .jinja or .json file if the configuration names one", () =>
    inTemporaryFolder(async (folder) => {
      const path = (name: string) => join(folder, name);
      await writeFile(path("a.jinja"), "J");
      await writeFile(path("a.json"), JSON.stringify({ chat_template: "S" }));
      assert.equal(await loadTemplateOverride(path("a.jinja"), "chat_template"), "J");
      assert.equal(await loadTemplateOverride(path("a.json"), "chat_template"), "S");
      assert.equal(await loadTemplateOverride(path("a.json"), "jinja_explicit"), '{"chat_template":"S"}');
    }));

  it("is refused with the reason if the file is not usable", () =>
    inTemporaryFolder(async (folder) => {
      const refused = async (name: string, content: string | null, words: RegExp) => {
        if (content !== null) await writeFile(join(folder, name), content);
        await assert.rejects(
          loadTemplateOverride(join(folder, name), "chat_template"),
          isError("config_invalid", words),
        );
      };
      await refused("none.jinja", null, /cannot be read \(ENOENT\)/);
      await refused("a.txt", "T", /expected a .jinja file/);
      await refused("bad.json", "{", /not valid JSON/);
      await refused("empty.json", "{}", /no "chat_template" string/);
    }));
});
