// JSON call formats: calls are JSON objects, with or without a tag before them. Used by Hermes and Qwen, Granite 3,
// Phi-4, Nemotron, Command R, FireFunction and Llama 3.
import { beforeJsonArguments, readJsonCalls } from "../json-call.ts";
import type { Mark } from "../output-parser.ts";
import type { Reading, Wait } from "../reading.ts";
import type { CallSyntax } from "../tool-format.ts";
import type { MarkedFormat } from "./marked-format.ts";

const closeBrace = 0x7d;

/**
 * Reads JSON calls and the optional closing tag after them. Accepts extra or missing closing braces, because models
 * make such errors.
 */
export function* readCallsUntil(reading: Reading, close: string): Wait<void> {
  if (!(yield* readJsonCalls(reading)) || close === "") return;
  while ((yield* reading.space()) === closeBrace) reading.position++;
  yield* reading.mark(close);
}

function mark(text: string, close: string): Mark {
  return { text, read: (reading) => readCallsUntil(reading, close) };
}

/** The Hermes syntax. Constrained decoding also uses it for formats whose own arguments are not JSON. */
export const taggedJson: CallSyntax = {
  trigger: "<tool_call>",
  open: "<tool_call>\n",
  between: "\n</tool_call>\n<tool_call>\n",
  close: "\n</tool_call>",
  before: (name) => beforeJsonArguments(name, "arguments"),
  after: () => "}",
};

/** Returns the syntax in which a JSON list of calls follows the text `open`. */
export function listSyntax(open: string, close: string, key: "arguments" | "parameters" = "arguments"): CallSyntax {
  return {
    trigger: open,
    open: `${open}[`,
    between: ", ",
    close: `]${close}`,
    before: (name) => beforeJsonArguments(name, key),
    after: () => "}",
  };
}

export const hermes: MarkedFormat = {
  name: "hermes",
  syntax: taggedJson,
  marks: [mark("<tool_call>", "</tool_call>")],
};

/** Format for models whose template has no tools. The prompt tells the model to write calls in this format. */
export const generic: MarkedFormat = { ...hermes, name: "generic" };

/** Granite 3 format. After thinking, the answer is between <response> tags. */
export const granite: MarkedFormat = {
  name: "granite",
  syntax: listSyntax("<|tool_call|>", ""),
  marks: [mark("<|tool_call|>", ""), mark("<tool_call>", "</tool_call>")],
  plainMarks: [{ text: "</response>", read: readAnswerEnd }],
  firstMarks: () => [{ text: "<response>", read: readAnswerBegin }],
};

// biome-ignore lint/correctness/useYield: this syntax never waits for text.
function* readAnswerBegin(reading: Reading): Wait<void> {
  if (reading.hasThought) reading.settle();
}

function* readAnswerEnd(reading: Reading): Wait<void> {
  if (reading.hasThought && (yield* reading.space()) < 0) reading.settle();
}

const functools = mark("functools", "");

export const phi: MarkedFormat = {
  name: "phi",
  syntax: listSyntax("<|tool_call|>", "<|/tool_call|>"),
  marks: [mark("<|tool_call|>", "<|/tool_call|>"), functools],
};

export const fireFunction: MarkedFormat = {
  name: "firefunction",
  syntax: listSyntax("functools", ""),
  marks: [functools],
};

export const nemotron: MarkedFormat = {
  name: "nemotron",
  syntax: listSyntax("<TOOLCALL>", "</TOOLCALL>"),
  marks: [mark("<TOOLCALL>", "</TOOLCALL>")],
};

export const commandR: MarkedFormat = {
  name: "command-r",
  syntax: {
    ...listSyntax("<|START_ACTION|>", "<|END_ACTION|>"),
    before: (name) => `{"tool_call_id": "0", "tool_name": ${JSON.stringify(name)}, "parameters": `,
  },
  marks: [mark("<|START_ACTION|>", "<|END_ACTION|>")],
};

export const llama: MarkedFormat = {
  name: "llama",
  syntax: {
    trigger: null,
    open: "",
    between: "; ",
    close: "",
    before: (name) => beforeJsonArguments(name, "parameters"),
    after: () => "}",
  },
  marks: [mark("<|python_tag|>", "")],
  firstMarks: ({ tools }) => (tools.size === 0 ? [] : [{ ...mark("{", ""), isKept: true }]),
};
