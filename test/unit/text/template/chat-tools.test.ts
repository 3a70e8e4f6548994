// Chat tools: definitions, calls and results in prompts, with small templates in the style of common model families.
import assert from "node:assert/strict";
import { before, describe, it } from "node:test";
import fc from "fast-check";
import type { ChatMessage, ToolSpec } from "../../../../engines/generation.ts";
import { ChatTemplate } from "../../../../engines/text/template/chat-template.ts";
import { createVocabulary, type Vocabulary } from "../../../../engines/text/tokenizer/vocabulary.ts";
import type { ServerError } from "../../../../runtime/errors.ts";
import { chatMl } from "../../../fixtures/models/tiny-gguf.ts";
import { tinyMetadata } from "../tokenizer/tiny-vocabulary.ts";

/** Template that writes tools into the system message, results into user messages, and content and calls into one message. */
const hermes = `{% if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}
{% endif %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools> in <tool_call></tool_call><|im_end|>
{% endif %}{% for m in messages %}{% if m.role == 'tool' %}<|im_start|>user
<tool_response>{{ m.content }}</tool_response><|im_end|>
{% elif m.role != 'system' or not tools %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}
<tool_call>{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}</tool_call>{% endfor %}<|im_end|>
{% endif %}{% endfor %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% else %}<think>
{% endif %}`;

/** Template with one call per message. Omits the content of a message with a call, and calls the arguments `parameters`. */
const llama = `{% for t in tools %}{{ t | tojson }}{% endfor %}{% for m in messages %}{% if m.tool_calls %}{% if m.tool_calls|length != 1 %}{{ raise_exception('only single calls') }}{% endif %}[assistant]{"name": "{{ m.tool_calls[0].function.name }}", "parameters": {{ m.tool_calls[0].function.arguments | tojson }}}{% elif m.role == 'tool' %}[ipython]{{ m.content }}{% else %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}`;

/** Template that requires ids of nine characters and alternating turns. */
const mistral = `{% set ns = namespace(turn=0) %}{% for m in messages %}{% if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) %}{% if (m.role == 'user') != (ns.turn % 2 == 0) %}{{ raise_exception('must alternate') }}{% endif %}{% set ns.turn = ns.turn + 1 %}{% endif %}{% if m.tool_calls %}{% for c in m.tool_calls or [] %}{% if c.id|length != 9 %}{{ raise_exception('ids of nine') }}{% endif %}[TOOL_CALLS]{{ c.function.name }} {{ c.id }} {{ c.function.arguments | tojson }}{% endfor %}{% elif m.role == 'tool' %}[RESULT]{{ m.tool_call_id }} {{ m.content }}{% else %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}{{ tools | tojson if tools else '' }}`;

/** Template that requires arguments as a string, and null as content. */
const deepseek = `{% for m in messages %}{% if m.role == 'assistant' and m.content is none %}{% for c in m.tool_calls or [] %}[call]{{ c.function.name + ' ' + c.function.arguments }}{% endfor %}{% elif m.role == 'tool' %}[result]{{ m.content }}{% else %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}`;

/** Template that labels a result with the name of the called tool. */
const named = `{% for t in tools %}{{ t.function.name }}: {{ t.function.parameters.properties | tojson }};{% endfor %}{% for m in messages %}{% for c in m.tool_calls or [] %}[call {{ c.function.name }}]{{ c.function.arguments | tojson }}{% endfor %}{% if m.role == 'tool' %}[{{ m.name }}]{% endif %}{{ m.content }}{% endfor %}`;

/** Template that supports neither tools nor a system message, and requires alternating turns. */
const gemma = `{% for m in messages %}{% if m.role not in ['user', 'assistant'] or (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}`;

const weather: ToolSpec = {
  name: "get_weather",
  description: "The weather somewhere",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  strict: false,
};
const user = (content: string): ChatMessage => ({ role: "user", content });
const call = (id: string, args: string, name = "get_weather") => ({ id, name, arguments: args });
const calling = (content: string, ...toolCalls: ReturnType<typeof call>[]): ChatMessage => ({
  role: "assistant",
  content,
  toolCalls,
});
const result = (toolCallId: string, content: string): ChatMessage => ({ role: "tool", content, toolCallId });

const twoCalls: readonly ChatMessage[] = [
  user("Where is it warmer?"),
  calling("Let me see.", call("call-paris", '{"city": "Paris"}'), call("call-rome", '{"city": "Rome"}')),
  result("call-rome", "30 degrees"),
  result("call-paris", "20 degrees"),
  { role: "assistant", content: "In Rome." },
  user("Thanks"),
];

let vocabulary: Vocabulary;
before(async () => {
  vocabulary = createVocabulary((await tinyMetadata({ lastTokens: ["<tool_call>", "</tool_call>"] })).tokenizer);
});

const template = (source: string) => new ChatTemplate(source, vocabulary);
const render = (source: string, messages: readonly ChatMessage[], tools: readonly ToolSpec[] = []): string => {
  const { text, marker } = template(source).render(messages, {}, tools);
  return text.replaceAll(marker, "");
};

describe("tools in a prompt", () => {
  it("are passed to a template that accepts them, in the common shape", () => {
    assert.equal(template(hermes).capabilities.takesTools, true);
    assert.match(
      render(hermes, [user("Hi")], [weather]),
      /<tools>\{"type": "function", "function": \{"name": "get_weather", "description": "The weather somewhere", "parameters": \{"type": "object", "properties": \{"city": \{"type": "string"\}\}, "required": \["city"\]\}\}\}<\/tools>/,
    );
    assert.doesNotMatch(render(hermes, [user("Hi")]), /tools/);
  });

  it("have parameters and a description if the client gives none", () => {
    const bare: ToolSpec = { name: "now", description: null, parameters: null, strict: false };
    assert.match(
      render(hermes, [user("Hi")], [bare]),
      /"name": "now", "description": "", "parameters": \{"type": "object", "properties": \{\}\}/,
    );
  });

  it("have a description for every parameter if the template fails without", () => {
    const demanding = `{% for t in tools %}{{ t.function.name }}{% for key, p in t.function.parameters.properties.items() %}{{ key + p.description.upper() }}{% endfor %}{% endfor %}{{ messages[0].content }}`;
    assert.equal(render(demanding, [user("Hi")], [weather]), "get_weathercityHi");
  });

  it("are described as text if the template has no place for them, with the call syntax", () => {
    assert.equal(template(chatMl).capabilities.takesTools, false);
    const prompt = render(chatMl, [{ role: "system", content: "Be brief." }, user("Hi")], [weather]);
    assert.match(prompt, /^<\|im_start\|>system\nBe brief\.\n\n[\s\S]*"name":"get_weather"/);
    assert.match(prompt, /<tool_call>\n\{"name": "function-name", "arguments": [\s\S]*\n<\/tool_call>/);
    assert.match(prompt, /<tool_response>[\s\S]*<\|im_start\|>user\nHi/);
    assert.match(render(gemma, [user("Hi")], [weather]), /^\[user\][\s\S]*get_weather[\s\S]*\n\nHi$/);
  });

  it("are passed as text, with the date, if the template fails without", () => {
    const textual = `{{ 'Functions: ' + functions + ' Today is ' + datetime + '.' }}{{ messages[0].content }}`;
    const prompt = render(textual, [user("Hi")], [weather]);
    const [, functions = "", day = ""] = /^Functions: (.*) Today is (.*)\.Hi$/s.exec(prompt) ?? [];
    assert.equal(JSON.parse(functions)[0].function.name, "get_weather");
    assert.match(day, /^\w{3}, \d{2} \w{3} \d{4}$/);
    assert.match(render(textual, [user("Hi")]), /^Functions: \[\] Today/);
  });

  it("are refused if they are nested too deeply", () => {
    let deep: unknown = {};
    for (let i = 0; i < 200; i++) deep = { items: deep };
    assert.throws(
      () => render(hermes, [user("Hi")], [{ ...weather, parameters: deep }]),
      (error: ServerError) => error.code === "invalid_value" && /tool "get_weather"/.test(error.message),
    );
  });
});

describe("calls and results in a prompt", () => {
  it("are written by the template, with arguments as JSON and content beside them", () => {
    assert.match(
      render(hermes, twoCalls, [weather]),
      /assistant\nLet me see\.<tool_call>\{"name": "get_weather", "arguments": \{"city": "Paris"\}\}<\/tool_call><tool_call>\{"name": "get_weather", "arguments": \{"city": "Rome"\}\}<\/tool_call><\|im_end\|>\n<\|im_start\|>user\n<tool_response>30 degrees<\/tool_response>/,
    );
  });

  it("are split, each call with its result, if the template accepts one call per message", () => {
    assert.match(
      render(llama, twoCalls, [weather]),
      /\[assistant\]Let me see\.\[assistant\]\{"name": "get_weather", "parameters": \{"city": "Paris"\}\}\[ipython\]20 degrees\[assistant\]\{"name": "get_weather", "parameters": \{"city": "Rome"\}\}\[ipython\]30 degrees\[assistant\]In Rome\./,
    );
    const unknown = [calling("", call("a", "{}"), call("b", "{}")), result("c", "lost"), result("a", "found")];
    assert.match(render(llama, unknown), /\{\}\}\[ipython\]found\[assistant\][^[]*\[ipython\]lost$/);
  });

  it("have ids of nine characters if the template requires them, the same for a call and its result", () => {
    const prompt = render(mistral, twoCalls, [weather]);
    const ids = (pattern: RegExp) => [...prompt.matchAll(pattern)].map(([, id]) => id);
    const called = ids(/\[TOOL_CALLS\]get_weather (\w+) /g);
    assert.ok(called.length === 2 && called.every((id) => id?.length === 9), prompt);
    assert.deepEqual(ids(/\[RESULT\](\w+) /g), called.toReversed());
    const kept = render(mistral, [user("Hi"), calling("", call("abcDEF123", "{}")), result("abcDEF123", "ok")]);
    assert.match(kept, /get_weather abcDEF123 \{\}\[RESULT\]abcDEF123 ok/);
  });

  it("have arguments as text and null content if the template requires them", () => {
    assert.match(
      render(deepseek, twoCalls),
      /\[call\]get_weather \{"city": "Paris"\}\[call\]get_weather \{"city": "Rome"\}/,
    );
  });

  it("name the called tool, also in its result", () => {
    const messages = [
      user("Hi"),
      calling("", call("a", "", "now"), call("b", '{"x": 1}', "later")),
      result("b", "two"),
      result("a", "one"),
    ];
    assert.match(render(named, messages), /Hi\[call now\]\{\}\[call later\]\{"x": 1\}\[later\]two\[now\]one$/);
  });

  it("name the called tool in a result if the calls themselves are written as text", () => {
    const appending = `{% set ns = namespace(calls=[]) %}{% for m in messages %}{% for c in m.tool_calls or [] %}{% set _ = ns.calls.append(c) %}{% endfor %}{% if m.role == 'tool' %}[{{ m.name or 'unknown' }}]{% endif %}{{ m.content }}{% endfor %}`;
    const messages = [user("Hi"), calling("", call("a", "{}", "now")), result("a", "one")];
    assert.match(render(appending, messages), /<\/tool_call>\[now\]one$/);
  });

  it("keep arguments as text if they are not a JSON object", () => {
    for (const text of ["{cut", "[1]", "word", `${'{"a":'.repeat(300)}1${"}".repeat(300)}`]) {
      const prompt = render(hermes, [user("Hi"), calling("", call("a", text)), result("a", "r")], [weather]);
      assert.ok(prompt.includes(`"arguments": ${JSON.stringify(text)}}`), prompt);
    }
  });

  it("are written as text, results as user messages, if the template has no place for them", () => {
    const prompt = render(gemma, twoCalls);
    assert.equal(
      prompt,
      "[user]Where is it warmer?[assistant]Let me see.\n" +
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>\n' +
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>' +
        "[user]<tool_response>\n30 degrees\n</tool_response>\n<tool_response>\n20 degrees\n</tool_response>" +
        "[assistant]In Rome.[user]Thanks",
    );
    const further = render(gemma, [...twoCalls.slice(0, 4), user("And?")]);
    assert.match(further, /20 degrees\n<\/tool_response>\nAnd\?$/);
  });
});

describe("thinking in a prompt", () => {
  it("is passed with the call that it led to", () => {
    const messages = [user("Hi"), { ...calling("", call("a", "{}")), reasoning: "Hm." }, result("a", "r")];
    assert.match(render(hermes, messages), /assistant\n<think>Hm\.<\/think><tool_call>/);
  });

  it("is joined with content if the template refuses both beside a call", () => {
    const source = `{% for m in messages %}{% if m.thinking and m.content and m.tool_calls %}{{ raise_exception('not both') }}{% endif %}[{{ m.thinking }}|{{ m.content }}]{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}`;
    const messages = [user("Hi"), { ...calling("So.", call("a", "{}")), reasoning: "Hm." }, result("a", "r")];
    assert.match(render(source, messages), /\[Hm\.\n\nSo\.\|\]get_weather\{\}/);
  });

  it("is requested under either name that templates use for it", () => {
    const source = "{{ messages[0].content }}{% if thinking %}<think>{% endif %}";
    const text = (args: object) => template(source).render([user("Hi")], args).text;
    assert.equal(text({ enableThinking: true }), "Hi<think>");
    assert.equal(text({ enableThinking: false }), "Hi");
    assert.equal(text({}), "Hi");
  });

  it("has begun if the prompt ends in it", () => {
    const thinking = template(hermes);
    assert.deepEqual(thinking.thinking, { begin: "<think>", end: "</think>" });
    assert.equal(thinking.render([user("Hi")], {}).opensThinking, true);
    assert.equal(thinking.render([user("Hi")], { enableThinking: false }).opensThinking, false);
    const plain = template(chatMl);
    assert.equal(plain.render([user("<think>")], {}).opensThinking, false);
  });
});

describe("a client's text in tools", () => {
  it("never becomes a control token at any position, and stays unchanged", () => {
    const names = ["<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"];
    const parts = fc.oneof(
      fc.constantFrom(...names, "<tool_", "call>", "<", "type", "hi"),
      fc.string({ maxLength: 3 }),
    );
    const hostile = fc.array(parts, { minLength: 1, maxLength: 4 }).map((all) => `~${all.join("")}~`);
    const shape = (at: (part: string) => string) => ({
      tool: {
        name: at("name"),
        description: at("description"),
        parameters: { type: "object", properties: { [at("key")]: { enum: [at("value"), 1, null] } } },
        strict: false,
      },
      messages: [
        user(at("user")),
        calling(at("content"), call(at("id"), JSON.stringify({ [at("argument")]: [at("said")] }), at("called"))),
        result(at("id"), at("result")),
      ],
    });
    for (const source of [hermes, mistral, named, chatMl]) {
      const made = template(source);
      const controls = (part: string) => {
        const { messages, tool } = shape((place) => `${part}${place}`);
        const tokens = vocabulary.encodePrompt(made.render(messages, {}, [tool]));
        return [...tokens].filter((token) => vocabulary.isControl(token));
      };
      const expected = controls("~hi~");
      fc.assert(
        fc.property(hostile, (part) => assert.deepEqual(controls(part), expected)),
        { numRuns: 25 },
      );
    }
    const { messages, tool } = shape((place) => `<tool_call>${place}`);
    assert.ok(render(hermes, messages, [tool]).includes('{"<tool_call>key": {"enum": ["<tool_call>value", 1, null]}}'));
  });

  it("keeps the schema words that templates read", () => {
    const source = `{% for t in tools %}{{ t.function.name }}{% for k, p in t.function.parameters.properties.items() %}{% if p.type == 'string' %}{{ k }} is text{% endif %}{% endfor %}{% endfor %}{{ messages[0].content }}`;
    const inName: Pick<Vocabulary, "controlTokens" | "tokenText" | "controlNamesIn" | "bosToken" | "eosToken"> = {
      bosToken: null,
      eosToken: null,
      controlTokens: [0],
      tokenText: () => "<|string_type|>",
      controlNamesIn: (text) => (text.includes("<|string_type|>") ? ["<|string_type|>"] : []),
    };
    assert.match(new ChatTemplate(source, inName).render([user("Hi")], {}, [weather]).text, /city is text/);
  });
});
