import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { chooseFormat } from "../../../../engines/text/parse/choose-format.ts";
import type { OutputPart, ToolFormat } from "../../../../engines/text/parse/tool-format.ts";
import { answerOf, partsOf, read, tools } from "./parse-answer.ts";
import { families, templates } from "./templates.ts";

const formats = families.map((family) => chooseFormat(templates[family]));
/** Formats in which the model does not write a call's arguments as JSON. */
const converting = new Set(["coder", "seed", "minimax", "glm", "gemma", "functiongemma"]);

interface Call {
  readonly name: string;
  readonly args: string;
}

/** Returns the text of these calls as constrained decoding generates it. */
function written({ syntax }: ToolFormat, calls: readonly Call[]): string {
  const texts = calls.map(({ name, args }) => syntax.before(name) + args + syntax.after(name));
  return syntax.open + texts.join(syntax.between ?? "") + syntax.close;
}

const args = fc.dictionary(fc.string(), fc.jsonValue(), { maxKeys: 4 }).map((value) => JSON.stringify(value));
const call = fc.record({ name: fc.constantFrom(...tools.map(({ name }) => name)), args });

test("every format reads the calls that its own syntax writes", () => {
  for (const format of formats) {
    const most = format.syntax.between === null ? 1 : 3;
    fc.assert(
      fc.property(fc.array(call, { minLength: 1, maxLength: most }), (calls) => {
        for (const pieces of [[written(format, calls)], written(format, calls).split("")]) {
          const answer = answerOf(partsOf(format, pieces));
          assert.deepEqual([answer.content, answer.reasoning, answer.failed], ["", "", []], format.name);
          assert.deepEqual(
            answer.calls.map(({ name, arguments: text }) => [name, text]),
            calls.map(({ name, args: text }) => [name, text]),
            format.name,
          );
        }
      }),
      { numRuns: 15 },
    );
  }
});

test("no format requires a token that only ends the model's answer", () => {
  const { syntax, shownTokens } = chooseFormat(templates.harmony);
  assert.ok(shownTokens.includes("<|call|>"));
  assert.equal(syntax.close, "");
});

test("a JSON call ends with the same delimiter as all calls of the format", () => {
  assert.match(chooseFormat(templates.glm).syntax.close, /<\/tool_call>$/);
});

test("a truncated call is content if its arguments have not begun, else a failed call with all its text", () => {
  for (const format of formats) {
    const text = written(format, [{ name: "get_weather", args: '{"city": "Paris"}' }]);
    const wholeAt = text.indexOf('"Paris"}') + '"Paris"}'.length;
    for (let cut = 1; cut < wholeAt; cut++) {
      const answer = answerOf(partsOf(format, text.slice(0, cut).split("")));
      const isBegun = cut > text.indexOf('{"city');
      assert.equal(isBegun ? answer.failed.join("") : answer.content, text.slice(0, cut), format.name);
      assert.deepEqual([answer.calls, isBegun ? answer.content : ""], [[], ""], format.name);
    }
  }
});

test("a call that the token limit cuts is a partial call or omitted, and no delimiter is content", () => {
  for (const format of formats) {
    const args = '{"city": "Paris"}';
    const text = written(format, [{ name: "get_weather", args }]);
    const argsAt = text.indexOf(args);
    // In these formats a call is recognized only at the start of the output.
    const isFirst = format.syntax.trigger === null || format.name === "harmony";
    const before = isFirst ? "" : "Let me see. ";
    for (let cut = 1; cut <= text.length; cut++) {
      for (const pieces of [[before + text.slice(0, cut)], (before + text.slice(0, cut)).split("")]) {
        const parts = partsOf(format, pieces, { isCut: true });
        const { content, reasoning, calls, failed } = answerOf(parts);
        const what = `${format.name}, cut after ${JSON.stringify(text.slice(0, cut))}`;
        assert.deepEqual([content.trim(), reasoning, failed], [before.trim(), "", []], what);
        assert.deepEqual(
          calls.map(({ name }) => name),
          cut > argsAt ? ["get_weather"] : [],
          what,
        );
        const isWhole = parts.some(({ kind }) => kind === "call-end");
        assert.equal(isWhole, cut >= argsAt + args.length, what);
        if (isWhole) assert.equal(calls[0]?.arguments, args, what);
        else if (calls.length > 0) assert.ok(parts.some(({ kind }) => kind === "call-cut"));
      }
    }
  }
});

test("text that the token limit cuts keeps everything except the possible start of a delimiter", () => {
  const content = (text: string) =>
    answerOf(partsOf(chooseFormat(templates.hermes), text.split(""), { isCut: true })).content;
  assert.equal(content("1 < 2 \n"), "1 < 2 \n");
  assert.equal(content("1 < 2 <to"), "1 < 2");
  assert.equal(content("a <tool_call> is a mark"), "a <tool_call> is a mark");
});

/** Returns the text that a client sees of an invalid call, without the message's end token. */
function shown(text: string): string {
  return text.replace(/<\|call\|>\s*/, "");
}

test("a call of an unknown tool is content", () => {
  for (const format of formats) {
    const text = written(format, [{ name: "get_whether", args: '{"city": "Paris"}' }]);
    assert.deepEqual(read(format, text), { content: shown(text), reasoning: "", calls: [], failed: [] }, format.name);
  }
});

test("a call with invalid JSON fails with all its text so far, and the text that follows is content", () => {
  for (const format of formats) {
    const text = written(format, [{ name: "get_time", args: '{"a": tru, "b": 1}' }]);
    const end = text.indexOf(", ", text.indexOf("tru"));
    const { content, calls, failed } = read(format, text);
    assert.deepEqual(
      { content, calls, failed },
      { content: shown(text.slice(end)), calls: [], failed: [text.slice(0, end)] },
    );
  }
});

test("without tools nothing is a call, but thinking is still found", () => {
  for (const format of formats) {
    const text = `Yes ${written(format, [{ name: "get_time", args: "{}" }])} no`;
    const { thinking } = format;
    const before = thinking === null ? "" : `${thinking.begin}why${thinking.end}`;
    const answer = read(format, before + format.answerOpen + text, { tools: [] });
    const reasoning = thinking === null ? "" : "why";
    assert.deepEqual(answer, { content: shown(text), reasoning, calls: [], failed: [] }, format.name);
  }
});

/** Returns a pattern for the tags around thinking and content. Besides tool calls, the parser removes only these tags and white space. */
function droppable({ name, thinking }: ToolFormat): RegExp {
  const marks = thinking === null ? [] : [thinking.begin.trim(), thinking.end].map(escaped);
  if (name === "granite") marks.push("</?response>");
  if (name === "recipients") marks.push("(>>>)?all\n");
  if (name === "harmony") return /<\|(start|channel)\|>.*?(<\|message\|>|$)|<\|(end|call|return)\|>/gs;
  return new RegExp(`${marks.join("|") || "(?!)"}`, "g");
}

function escaped(text: string): string {
  return text.replace(/[|[\]\\/]/g, "\\$&");
}

/** Asserts that every character is either in a part or in the delimiters around a part. */
function checkNothingIsLost(format: ToolFormat, parts: readonly OutputPart[], text: string): void {
  let end = 0;
  let open = "";
  let failed: string[] = [];
  let whole: string[] = [];
  const checkGap = (gap: string) => {
    let rest = gap;
    for (const lost of failed) {
      assert.ok(rest.includes(lost), `${format.name}: a failed call is at another position`);
      rest = rest.slice(rest.indexOf(lost) + lost.length);
    }
    if (whole.length === 0 && failed.length === 0) {
      assert.equal(rest.replace(droppable(format), "").trim(), "", `${format.name} loses text of ${gap}`);
    }
    for (const text of converting.has(format.name) ? [] : whole) {
      assert.ok(text === "{}" || gap.includes(text), `${format.name}: arguments that were not written`);
    }
    failed = [];
    whole = [];
  };
  for (const part of parts) {
    if (part.kind === "content" || part.kind === "reasoning") {
      checkGap(text.slice(end, part.at));
      end = part.at + part.text.length;
    } else if (part.kind === "call") open = "";
    else if (part.kind === "arguments") open += part.text;
    else if (part.kind === "call-end") whole.push(open);
    else if (part.kind === "call-failed") failed.push(part.text);
  }
  checkGap(text.slice(end));
}

test("any text gives the same parts for any division into pieces, and nothing is lost", () => {
  for (const format of formats) {
    const { thinking, syntax, shownTokens } = format;
    const parts = [
      ...shownTokens,
      ...(thinking === null ? [] : [thinking.begin, thinking.end]),
      ...[syntax.open, syntax.close, syntax.between ?? "", syntax.before("get_time"), syntax.after("get_time")],
      ...["<function=get_time>", "<parameter=a>", "<tool_call>get_time\n", "call:get_time{a:1", "get_time", "{", "}"],
      ...['{"a": [1]}', '{"name": "get_time", ', '"arguments": {}', "[", "]", ", ", "; ", "\n", " ", "<", "🙂", "text"],
    ];
    const piece = fc.oneof({ weight: 9, arbitrary: fc.constantFrom(...parts) }, { weight: 1, arbitrary: fc.string() });
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 12 }), fc.boolean(), fc.nat(9), (texts, startsThinking, size) => {
        const text = texts.join("");
        const options = { startsThinking };
        const whole = partsOf(format, [text], options);
        checkNothingIsLost(format, whole, text);
        const pieces = text.match(new RegExp(`.{1,${size + 1}}`, "gs")) ?? [];
        assert.deepEqual(answerOf(partsOf(format, pieces, options)), answerOf(whole), format.name);
      }),
      { numRuns: 60 },
    );
  }
});

test("text is emitted at once, except a possible start of a delimiter and the white space before it", () => {
  const parser = chooseFormat(templates.hermes).createParser({ tools, startsThinking: false });
  const push = (text: string) => parser.push(text).map((part) => ("text" in part ? part.text : part.kind));
  assert.deepEqual(push("Hello"), ["Hello"]);
  assert.deepEqual(push(" you. "), [" you."]);
  assert.deepEqual(push("1 < 2 <"), [" 1 < 2"]);
  assert.deepEqual(push("tool"), []);
  assert.deepEqual(push("box>"), [" <toolbox>"]);
});

test("arguments are emitted as they arrive, once the call is known", () => {
  const parser = chooseFormat(templates.coder).createParser({ tools, startsThinking: false });
  parser.push("<tool_call>\n<function=write_file>\n<parameter=text>\nab");
  assert.deepEqual(parser.push('c"d'), [{ kind: "arguments", text: 'c\\"d' }]);
  assert.deepEqual(parser.push("\n</para"), []);
  assert.deepEqual(parser.push("m>e"), [{ kind: "arguments", text: "\\n</param>e" }]);
});

test("arguments in tags without an end, or with text between them, are a failed call", () => {
  const format = chooseFormat(templates.coder);
  const text = "<tool_call>\n<function=write_file>\n<parameter=path>\na\n</parameter>\n";
  assert.deepEqual(read(format, text).failed, [text]);
  assert.deepEqual(read(format, `${text}so</function>`).failed, [text]);
  assert.equal(read(format, `${text}so</function>`).content, "so</function>");
});

test("calls after a failed call are read", () => {
  const bad = '<tool_call>{"name": "get_time", "arguments": {x';
  const good = '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>';
  const { calls, failed, content } = read(chooseFormat(templates.hermes), `${bad}${good} ${bad}`);
  assert.equal(calls.length, 1);
  assert.deepEqual(failed, [bad.slice(0, -1), bad.slice(0, -1)]);
  assert.equal(content, "xx");
});
