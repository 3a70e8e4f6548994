// Named call formats: a call consists of the tool's name, special tags, and the arguments as JSON. Used by DeepSeek,
// Kimi, Mistral and Functionary.
import type { Mark } from "../output-parser.ts";
import type { Reading, Wait } from "../reading.ts";
import { listSyntax, readCallsUntil } from "./json-calls.ts";
import type { MarkedFormat } from "./marked-format.ts";

const openBrace = 0x7b;
const openBracket = 0x5b;

const deepseekMarks = {
  begin: "<｜tool▁calls▁begin｜>",
  end: "<｜tool▁calls▁end｜>",
  callBegin: "<｜tool▁call▁begin｜>",
  separator: "<｜tool▁sep｜>",
  callEnd: "<｜tool▁call▁end｜>",
};

function* readDeepseekCalls(reading: Reading, isFenced: boolean): Wait<void> {
  const { callBegin, separator, callEnd, end } = deepseekMarks;
  do {
    if (isFenced && !(yield* reading.literal(`function${separator}`))) return;
    const found = yield* reading.toolName([isFenced ? "\n" : separator]);
    if (found === null) return;
    yield* reading.space();
    if (isFenced && !(yield* reading.literal("```json"))) return;
    if (!(yield* reading.callWithArguments(found.name, null))) return;
    if (isFenced) yield* reading.mark("```");
    yield* reading.mark(callEnd);
    yield* reading.space();
  } while (yield* reading.literal(callBegin));
  yield* reading.mark(end);
}

function deepseek(name: string, isFenced: boolean): MarkedFormat {
  const { begin, end, callBegin, separator, callEnd } = deepseekMarks;
  const call: Mark = { text: callBegin, read: (reading) => readDeepseekCalls(reading, isFenced) };
  function* readSection(reading: Reading): Wait<void> {
    yield* reading.space();
    if (yield* reading.literal(callBegin)) yield* call.read(reading);
  }
  return {
    name,
    syntax: {
      trigger: begin,
      open: begin + callBegin,
      between: callEnd + (isFenced ? "\n" : "") + callBegin,
      close: callEnd + end,
      before: (tool) => (isFenced ? `function${separator}${tool}\n\`\`\`json\n` : tool + separator),
      after: () => (isFenced ? "\n```" : ""),
    },
    marks: [{ text: begin, read: readSection }, call],
  };
}

/**
 * Format of DeepSeek V3 and R1: the word "function" precedes the name, and the arguments are in a fenced code block.
 */
export const deepseekFenced = deepseek("deepseek-fenced", true);
/** Format of DeepSeek V3.1. */
export const deepseekPlain = deepseek("deepseek", false);

const kimiMarks = {
  begin: "<|tool_calls_section_begin|>",
  end: "<|tool_calls_section_end|>",
  callBegin: "<|tool_call_begin|>",
  argumentBegin: "<|tool_call_argument_begin|>",
  callEnd: "<|tool_call_end|>",
};

/**
 * Reads calls after the begin tag. The id of a call contains the tool's name and the number of the call in the
 * conversation.
 */
function* readKimiCalls(reading: Reading): Wait<void> {
  do {
    yield* reading.space();
    const prefix = (yield* reading.literal("functions.")) ? "functions." : "";
    const found = yield* reading.toolName([":"]);
    if (found === null) return;
    const count = yield* reading.until(kimiMarks.argumentBegin, 16);
    if (count === null || !/^\d+\s*$/.test(count)) return;
    if (!(yield* reading.callWithArguments(found.name, `${prefix}${found.name}:${count.trim()}`))) return;
    yield* reading.mark(kimiMarks.callEnd);
    yield* reading.space();
  } while (yield* reading.literal(kimiMarks.callBegin));
  yield* reading.mark(kimiMarks.end);
}

function* readKimiSection(reading: Reading): Wait<void> {
  yield* reading.space();
  if (yield* reading.literal(kimiMarks.callBegin)) yield* readKimiCalls(reading);
}

export const kimi: MarkedFormat = {
  name: "kimi",
  syntax: {
    trigger: kimiMarks.begin,
    open: kimiMarks.begin + kimiMarks.callBegin,
    between: kimiMarks.callEnd + kimiMarks.callBegin,
    close: kimiMarks.callEnd + kimiMarks.end,
    before: (name) => `functions.${name}:0${kimiMarks.argumentBegin}`,
    after: () => "",
  },
  marks: [
    { text: kimiMarks.begin, read: readKimiSection },
    { text: kimiMarks.callBegin, read: readKimiCalls },
  ],
};

const toolCalls = "[TOOL_CALLS]";

/** Reads a list of JSON calls, or a name and its arguments. In the second form, each call has its own tag. */
function* readMistralCall(reading: Reading): Wait<void> {
  const code = yield* reading.space();
  if (code === openBracket || code === openBrace) return yield* readCallsUntil(reading, "");
  const found = yield* reading.toolName(["[ARGS]", "[CALL_ID]"]);
  if (found === null) return;
  const id = found.ending === "[ARGS]" ? null : yield* reading.until("[ARGS]", 64);
  if (found.ending !== "[ARGS]" && id === null) return;
  yield* reading.callWithArguments(found.name, id);
}

const mistralMarks: readonly Mark[] = [{ text: toolCalls, read: readMistralCall }];

/** Format of Mistral models up to Mistral Small 3.1. */
export const mistralList: MarkedFormat = {
  name: "mistral-list",
  syntax: listSyntax(toolCalls, ""),
  marks: mistralMarks,
};

/** Format of Mistral models since Mistral Small 3.2. */
export const mistral: MarkedFormat = {
  name: "mistral",
  syntax: {
    trigger: toolCalls,
    open: toolCalls,
    between: toolCalls,
    close: "",
    before: (name) => `${name}[ARGS]`,
    after: () => "",
  },
  marks: mistralMarks,
  texts: ["[CALL_ID]"],
};

function* readFunctionTag(reading: Reading): Wait<void> {
  do {
    const found = yield* reading.toolName([">"]);
    if (found === null || !(yield* reading.callWithArguments(found.name, null))) return;
    yield* reading.mark("</function>");
    yield* reading.space();
  } while (yield* reading.literal("<function="));
}

/** Format of Functionary 3.1. Some templates also prompt Llama 3 for this format. */
export const functionTags: MarkedFormat = {
  name: "function-tags",
  syntax: {
    trigger: "<function=",
    open: "<function=",
    between: "<function=",
    close: "",
    before: (name) => `${name}>`,
    after: () => "</function>",
  },
  marks: [{ text: "<function=", read: readFunctionTag }],
};

function* readRecipient(reading: Reading): Wait<void> {
  if (yield* reading.literal("all\n")) return reading.settle();
  const found = yield* reading.toolName(["\n"]);
  if (found !== null) yield* reading.callWithArguments(found.name, null);
}

/** Format of Functionary 3.2: every message names its recipient. The prompt ends with the tag of the first message. */
export const recipients: MarkedFormat = {
  name: "recipients",
  answerOpen: "all\n",
  syntax: {
    trigger: null,
    open: "",
    between: ">>>",
    close: "",
    before: (name) => `${name}\n`,
    after: () => "",
  },
  marks: [{ text: ">>>", read: readRecipient }],
  firstMarks: (reading) =>
    ["all", ...reading.tools.keys()].map((name) => ({ text: `${name}\n`, isKept: true, read: readRecipient })),
};
