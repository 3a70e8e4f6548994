// Model families: a table of outputs and the parts that they must be parsed into, however the output is divided into pieces.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { chooseFormat } from "../../../../engines/text/parse/choose-format.ts";
import { read } from "./parse-answer.ts";
import { type Family, templates } from "./templates.ts";

interface Case {
  readonly title: string;
  readonly text: string;
  readonly startsThinking?: boolean;
  readonly content?: string;
  readonly reasoning?: string;
  /** Name, arguments and optional id of each call. */
  readonly calls?: readonly (readonly [name: string, args: string, id?: string])[];
}

const paris = '{"city": "Paris"}';
const nested = '{"path": "a.json", "tags": [{"x": {"y": [1, -2.5e3, true, null]}}, []], "n": 0}';
const tricky = String.raw`{"text": "}{]\" </tool_call> <|call|> [ARGS] \\ \u00e9 \ud83d\ude00 é😀"}`;

function deepseekCall(name: string, args: string): string {
  return `<｜tool▁call▁begin｜>${name}<｜tool▁sep｜>${args}<｜tool▁call▁end｜>`;
}

function fencedCall(name: string, args: string): string {
  return deepseekCall("function", "").replace(
    "<｜tool▁call▁end｜>",
    `${name}\n\`\`\`json\n${args}\n\`\`\`<｜tool▁call▁end｜>`,
  );
}

function kimiCall(id: string, args: string): string {
  return `<|tool_call_begin|>${id}<|tool_call_argument_begin|>${args}<|tool_call_end|>`;
}

const cases: Partial<Record<Family, readonly Case[]>> = {
  hermes: [
    { title: "plain text", text: "Hello <b>there</b>, 1 < 2.\n", content: "Hello <b>there</b>, 1 < 2.\n" },
    {
      title: "thinking, text, and two calls",
      text: `<think>\nHm, <tool_call> it.\n</think>\n\nLet me look.\n<tool_call>\n{"name": "get_weather", "arguments": ${paris}}\n</tool_call>\n<tool_call>\n{"name": "write_file", "arguments": ${nested}}\n</tool_call>`,
      reasoning: "Hm, <tool_call> it.",
      content: "Let me look.",
      calls: [
        ["get_weather", paris],
        ["write_file", nested],
      ],
    },
    {
      title: "a call with a missing brace, and one with a surplus brace",
      text: `<tool_call>{"name": "get_weather", "arguments": ${paris}\n</tool_call>\n<tool_call>{"name": "get_time", "arguments": {}}}\n</tool_call> Well.`,
      content: "Well.",
      calls: [
        ["get_weather", paris],
        ["get_time", "{}"],
      ],
    },
    {
      title: "arguments that are JSON in a string, or null",
      text: `<tool_call>{"name": "write_file", "arguments": ${JSON.stringify(nested)}, "id": "a"}</tool_call><tool_call>{"arguments": "{}", "name": "get_time"}</tool_call><tool_call>{"name": "get_time", "arguments": null}</tool_call>`,
      calls: [
        ["write_file", nested, "a"],
        ["get_time", "{}"],
        ["get_time", "{}"],
      ],
    },
    {
      title: "calls in the form of OpenAI's protocol",
      text: `<tool_call>{"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}}</tool_call><tool_call>{"type": "function", "function": {"name": "get_weather", "arguments": ${paris}}}</tool_call><tool_call>{"type": "function", "function": "get_time", "parameters": {}}</tool_call>`,
      calls: [
        ["get_weather", paris, "call_1"],
        ["get_weather", paris],
        ["get_time", "{}"],
      ],
    },
    {
      title: "a string instead of an object, which is not a call",
      text: '<tool_call>{"name": "get_time", "arguments": "[1]"}</tool_call>',
      content: '<tool_call>{"name": "get_time", "arguments": "[1]"}</tool_call>',
    },
    {
      title: "marks, braces and escapes in a string",
      text: `<tool_call>{"name": "write_file", "arguments": ${tricky}}</tool_call>`,
      calls: [["write_file", tricky]],
    },
    {
      title: "thinking that the prompt has begun",
      text: "so be it\n</think>\n\nYes.",
      startsThinking: true,
      reasoning: "so be it",
      content: "Yes.",
    },
    {
      title: "an id before the arguments, and keys in another order",
      text: `<tool_call>{"id": "c1", "type": "function", "name": "get_time", "arguments": {}}</tool_call> <tool_call>{"arguments": ${paris}, "name": "get_weather"}</tool_call>`,
      calls: [
        ["get_time", "{}", "c1"],
        ["get_weather", paris],
      ],
    },
    {
      title: "a call without arguments, and text after calls",
      text: `<tool_call>{"name": "get_time"}</tool_call>\nDone.`,
      calls: [["get_time", "{}"]],
      content: "Done.",
    },
    {
      title: "a name with an escape, and white space between all tokens",
      text: `<tool_call> {\n "name" : "get\\u005ftime" , "arguments" : { } } \n</tool_call>\n`,
      calls: [["get_time", "{ }"]],
    },
    {
      title: "a call without its end marks",
      text: `<tool_call>{"name": "get_weather", "arguments": ${paris}`,
      calls: [["get_weather", paris]],
    },
    {
      title: "two calls within one pair of marks",
      text: `<tool_call>\n{"name": "get_time", "arguments": {}}\n{"name": "get_weather", "arguments": ${paris}}\n</tool_call>`,
      calls: [
        ["get_time", "{}"],
        ["get_weather", paris],
      ],
    },
    {
      title: "thinking tags that come too late, as content",
      text: "The tag <think> begins it, </think> ends it.",
      content: "The tag <think> begins it, </think> ends it.",
    },
    {
      title: "thinking between calls",
      text: `<tool_call>{"name": "get_time"}</tool_call><think>and now</think><tool_call>{"name": "get_time"}</tool_call>`,
      calls: [
        ["get_time", "{}"],
        ["get_time", "{}"],
      ],
      reasoning: "and now",
    },
  ],
  coder: [
    {
      title: "parameters typed by the schema",
      text: "I look.\n<tool_call>\n<function=get_weather>\n<parameter=city>\n42\n</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=metric>\nTrue\n</parameter>\n</function>\n</tool_call>",
      content: "I look.",
      calls: [["get_weather", '{"city": "42", "days": 3, "metric": true}']],
    },
    {
      title: "a string of several lines with quotes, tags and line breaks at its ends",
      text: '<tool_call>\n<function=write_file>\n<parameter=path>\na.ts\n</parameter>\n<parameter=text>\n\nconst a = "\\n";\n</param> 😀\n\n</parameter>\n</function>\n</tool_call>',
      calls: [["write_file", '{"path": "a.ts", "text": "\\nconst a = \\"\\\\n\\";\\n</param> 😀\\n"}']],
    },
    {
      title: "two calls, one without parameters, without the outer marks",
      text: "<function=get_time>\n</function>\n<function=get_weather><parameter=city>Rome</parameter></function>",
      calls: [
        ["get_time", "{}"],
        ["get_weather", '{"city": "Rome"}'],
      ],
    },
    {
      title: "JSON if the schema does not say, and a string if it is not JSON",
      text: '<tool_call><function=get_time><parameter=zone>\n{"a": [1]}\n</parameter><parameter=b>\nno json\n</parameter></function></tool_call>',
      calls: [["get_time", '{"zone": {"a": [1]}, "b": "no json"}']],
    },
    {
      title: "a call as JSON",
      text: `<tool_call>\n{"name": "write_file", "arguments": ${tricky}}\n</tool_call>`,
      calls: [["write_file", tricky]],
    },
  ],
  seed: [
    {
      title: "thinking and a call",
      text: "<seed:think>hm</seed:think>\n<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris</parameter>\n</function>\n</seed:tool_call>",
      reasoning: "hm",
      calls: [["get_weather", paris]],
    },
  ],
  minimax: [
    {
      title: "two calls within one pair of marks",
      text: '<think>\nhm\n</think>\n\n<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n</invoke>\n<invoke name="get_time">\n</invoke>\n</minimax:tool_call>',
      reasoning: "hm",
      calls: [
        ["get_weather", paris],
        ["get_time", "{}"],
      ],
    },
  ],
  glm: [
    {
      title: "a call as JSON, and its end",
      text: `<tool_call>\n{"name": "get_weather", "arguments": ${paris}}\n</tool_call>\nWell.`,
      content: "Well.",
      calls: [["get_weather", paris]],
    },
    {
      title: "thinking, text and two calls",
      text: "\n<think>hm</think>\nI look.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>get_time\n</tool_call>",
      reasoning: "hm",
      content: "I look.",
      calls: [
        ["get_weather", '{"city": "Paris", "days": 2}'],
        ["get_time", "{}"],
      ],
    },
    {
      title: "all on one line",
      text: "<tool_call>get_weather_alerts<arg_key>a</arg_key><arg_value>[1, 2]</arg_value></tool_call><tool_call>get_time</tool_call>",
      calls: [
        ["get_weather_alerts", '{"a": [1, 2]}'],
        ["get_time", "{}"],
      ],
    },
  ],
  llama: [
    {
      title: "a call that is the whole output",
      text: `{"name": "get_weather", "parameters": ${paris}}`,
      calls: [["get_weather", paris]],
    },
    {
      title: "several calls, after the tag",
      text: `<|python_tag|>{"name": "get_weather", "parameters": ${paris}}; {"type": "function", "name": "get_time", "parameters": {}}\n{"name": "write_file", "parameters": ${nested}}`,
      calls: [
        ["get_weather", paris],
        ["get_time", "{}"],
        ["write_file", nested],
      ],
    },
    {
      title: "JSON that is not a call, and JSON after text",
      text: `{"name": "Ada", "parameters": {}} or {"name": "get_time", "parameters": {}}`,
      content: `{"name": "Ada", "parameters": {}} or {"name": "get_time", "parameters": {}}`,
    },
  ],
  "mistral-list": [
    {
      title: "text and a list of calls",
      text: `Sure. [TOOL_CALLS] [{"name": "get_weather", "arguments": ${paris}, "id": "123456789"}, {"id": "abcdefghi", "name": "write_file", "arguments": ${tricky}}]`,
      content: "Sure.",
      calls: [
        ["get_weather", paris],
        ["write_file", tricky, "abcdefghi"],
      ],
    },
  ],
  mistral: [
    {
      title: "thinking and calls with and without ids",
      text: `[THINK]so[/THINK]Yes[TOOL_CALLS]get_weather[ARGS]${paris}[TOOL_CALLS]write_file[CALL_ID]123456789[ARGS]${tricky}`,
      reasoning: "so",
      content: "Yes",
      calls: [
        ["get_weather", paris],
        ["write_file", tricky, "123456789"],
      ],
    },
  ],
  "deepseek-fenced": [
    {
      title: "thinking that the prompt has begun, text, and two calls",
      text: `hm\n</think>\n\nI look.<｜tool▁calls▁begin｜>${fencedCall("get_weather", paris)}\n${fencedCall("write_file", tricky)}<｜tool▁calls▁end｜>`,
      startsThinking: true,
      reasoning: "hm",
      content: "I look.",
      calls: [
        ["get_weather", paris],
        ["write_file", tricky],
      ],
    },
  ],
  deepseek: [
    {
      title: "two calls",
      text: `<｜tool▁calls▁begin｜>${deepseekCall("get_weather", paris)}${deepseekCall("write_file", nested)}<｜tool▁calls▁end｜>`,
      calls: [
        ["get_weather", paris],
        ["write_file", nested],
      ],
    },
    {
      title: "a call without the section's begin mark",
      text: deepseekCall("get_weather_alerts", tricky),
      calls: [["get_weather_alerts", tricky]],
    },
  ],
  kimi: [
    {
      title: "thinking, text, and two calls with ids",
      text: `<think>hm</think>I look.<|tool_calls_section_begin|>${kimiCall("functions.get_weather:0", paris)}${kimiCall("functions.write_file:12", tricky)}<|tool_calls_section_end|>`,
      reasoning: "hm",
      content: "I look.",
      calls: [
        ["get_weather", paris, "functions.get_weather:0"],
        ["write_file", tricky, "functions.write_file:12"],
      ],
    },
  ],
  "function-tags": [
    {
      title: "text and two calls",
      text: `Let me.\n<function=get_weather>${paris}</function>\n<function=write_file>${tricky}</function>`,
      content: "Let me.",
      calls: [
        ["get_weather", paris],
        ["write_file", tricky],
      ],
    },
  ],
  recipients: [
    { title: "text for all recipients", text: "all\nHello >>> you", content: "Hello >>> you" },
    {
      title: "text and two calls",
      text: `all\nI look.\n>>>get_weather\n${paris}>>>write_file\n${tricky}`,
      content: "I look.",
      calls: [
        ["get_weather", paris],
        ["write_file", tricky],
      ],
    },
    {
      title: "a call without text before it",
      text: `get_weather_alerts\n${paris}`,
      calls: [["get_weather_alerts", paris]],
    },
  ],
  granite: [
    {
      title: "a list of calls",
      text: `<|tool_call|>[{"name": "get_weather", "arguments": ${paris}}, {"name": "get_time", "arguments": {}}]`,
      calls: [
        ["get_weather", paris],
        ["get_time", "{}"],
      ],
    },
    {
      title: "an answer between response tags",
      text: "<think>hm</think><response>It is </response> here.</response>\n",
      reasoning: "hm",
      content: "It is </response> here.",
    },
    {
      title: "the same tags in an answer without thinking",
      text: "<response><ok/></response>",
      content: "<response><ok/></response>",
    },
  ],
  phi: [
    {
      title: "calls after either mark",
      text: `<|tool_call|>[{"name": "get_weather", "arguments": ${paris}}]<|/tool_call|>functools[{"name": "get_time", "arguments": {}}]`,
      calls: [
        ["get_weather", paris],
        ["get_time", "{}"],
      ],
    },
  ],
  firefunction: [
    {
      title: "text with prefixes of the mark, and a list of calls",
      text: `For functools fun: functools[{"name": "write_file", "arguments": ${tricky}}]`,
      content: "For functools fun:",
      calls: [["write_file", tricky]],
    },
  ],
  nemotron: [
    {
      title: "a list of calls",
      text: `<think></think><TOOLCALL>[{"name": "get_time", "arguments": {}}, {"name": "get_weather", "arguments": ${paris}}]</TOOLCALL>`,
      calls: [
        ["get_time", "{}"],
        ["get_weather", paris],
      ],
    },
  ],
  "command-r": [
    {
      title: "a plan and two calls",
      text: `<|START_THINKING|>I look.<|END_THINKING|><|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": ${paris}},\n    {"tool_call_id": "1", "tool_name": "get_time", "parameters": {}}\n]<|END_ACTION|>`,
      reasoning: "I look.",
      calls: [
        ["get_weather", paris],
        ["get_time", "{}"],
      ],
    },
  ],
  gemma: [
    {
      title: "thinking and a call with every kind of value",
      text: '<|channel>thought\nhm\n<channel|><|tool_call>call:write_file{n:-1.5,ok:true,path:<|"|>a "b", {c}\n<|"|>,tags:[<|"|>x<|"|>,{y:null},[],{}]}<tool_call|>',
      reasoning: "hm",
      calls: [
        ["write_file", '{"n": -1.5, "ok": true, "path": "a \\"b\\", {c}\\n", "tags": ["x", {"y": null}, [], {}]}'],
      ],
    },
    {
      title: "two calls, one with JSON and one without arguments",
      text: `Yes. <|tool_call>call:get_weather{ "city": "Paris"}<tool_call|><|tool_call>call:get_time{}<tool_call|>`,
      content: "Yes.",
      calls: [
        ["get_weather", '{ "city": "Paris"}'],
        ["get_time", "{}"],
      ],
    },
    {
      title: "quoted keys and an unquoted string",
      text: `<|tool_call>call:get_time{a:{<|"|>k:1<|"|>:new york}}<tool_call|>`,
      calls: [["get_time", '{"a": {"k:1": "new york"}}']],
    },
  ],
  functiongemma: [
    {
      title: "two calls",
      text: "<start_function_call>call:get_weather{city:<escape>Paris<escape>}<end_function_call><start_function_call>call:get_time{}<end_function_call>",
      calls: [
        ["get_weather", paris],
        ["get_time", "{}"],
      ],
    },
  ],
  harmony: [
    {
      title: "thinking and the answer",
      text: "<|channel|>analysis<|message|>hm, 1 < 2<|end|><|start|>assistant<|channel|>final<|message|>Hello <b>.<|return|>",
      reasoning: "hm, 1 < 2",
      content: "Hello <b>.",
    },
    {
      title: "thinking, a preamble, and a call",
      text: `<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.write_file <|constrain|>json<|message|>${tricky}<|call|>`,
      reasoning: "hm",
      content: "I look.",
      calls: [["write_file", tricky]],
    },
    {
      title: "a call without a preamble, named before the channel",
      text: ` to=functions.get_weather<|channel|>commentary json<|message|>${paris}`,
      calls: [["get_weather", paris]],
    },
    {
      title: "a message to an unknown recipient",
      text: `<|channel|>analysis to=python code<|message|>print(1)<|call|>`,
      content: "<|channel|>analysis to=python code<|message|>print(1)",
    },
    { title: "text without a header", text: "Hello.", content: "Hello." },
  ],
  generic: [
    {
      title: "text and a call",
      text: `Let me see.\n\n<tool_call>\n{"name": "write_file", "arguments": ${tricky}}\n</tool_call>`,
      content: "Let me see.",
      calls: [["write_file", tricky]],
    },
  ],
};

for (const [family, list] of Object.entries(cases) as [Family, readonly Case[]][]) {
  describe(family, () => {
    for (const { title, text, startsThinking = false, content = "", reasoning = "", calls = [] } of list) {
      test(`reads ${title}, for any division into pieces`, () => {
        const answer = read(chooseFormat(templates[family]), text, { startsThinking });
        assert.deepEqual(answer, {
          content,
          reasoning,
          calls: calls.map(([name, args, id = null]) => ({ name, id, arguments: args })),
          failed: [],
        });
      });
    }
  });
}
