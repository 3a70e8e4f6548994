// Harmony format (gpt-oss): the output is a list of messages. Each message has a header that names its channel and
// recipient. The header decides whether the message is reasoning, content or the arguments of a call. Headers are not
// emitted.
import { type Mark, MarkedParser } from "../output-parser.ts";
import { Reading, type Wait } from "../reading.ts";
import type { CallSyntax, ThinkingTags, ToolFormat } from "../tool-format.ts";
import { tokenNames, turnMark } from "./marked-format.ts";

const message = "<|message|>";
const call = "<|call|>";
const finalOpen = "<|channel|>final<|message|>";
const maxHeaderLength = 256;
const tools = "functions.";
const toTool = `to=${tools}`;

/** Reads the rest of a message header. `read`: the part of the header that was already read. */
function* readHeader(reading: Reading, read: string): Wait<void> {
  const rest = yield* reading.until(message, maxHeaderLength);
  if (rest === null) return read === "" ? dropCutHeader(reading) : undefined;
  const header = read + rest;
  const recipient = /(?:^|\s)to=([^\s<]+)/.exec(header)?.[1] ?? null;
  if (recipient === null) {
    reading.mode = /(?:<\|channel\|>|^)analysis/.test(header) ? "reasoning" : "content";
    return reading.settle();
  }
  // A message to an unknown recipient is emitted as it was written, including its header.
  reading.mode = "content";
  const name = recipient.startsWith(tools) ? recipient.slice(tools.length) : null;
  if (name === null || !reading.tools.has(name)) return;
  if (yield* reading.callWithArguments(name, null)) yield* reading.mark(call);
}

/** Drops an incomplete header if the output ends within it. */
function dropCutHeader(reading: Reading): void {
  const rest = reading.text.slice(reading.position);
  if (!reading.isOver || !/^[\w\s<|>]*$/.test(rest)) return;
  reading.position = reading.text.length;
  reading.settle();
}

const headerMarks: readonly Mark[] = ["<|start|>", "<|channel|>"].map((text) => ({
  text,
  read: (reading) => readHeader(reading, ""),
}));
const marks: readonly Mark[] = [
  ...headerMarks,
  ...["<|end|>", call, "<|return|>"].map((text) => turnMark(text, "content")),
];

const syntax: CallSyntax = {
  trigger: ` ${toTool}`,
  open: ` ${toTool}`,
  between: null,
  // The closing text is empty, because the tag that ends a call also ends the output. This tag is a control token,
  // which a grammar cannot express as text.
  close: "",
  before: (name) => `${name} <|constrain|>json${message}`,
  after: () => "",
};

/** Creates the format. `thinking`: the tags around the model's reasoning, which is in the analysis channel. */
export function harmony(thinking: ThinkingTags | null): ToolFormat {
  return {
    name: "harmony",
    thinking,
    syntax,
    answerOpen: finalOpen,
    shownTokens: tokenNames([...marks.map(({ text }) => text), syntax.before("f")]),
    createParser: (options) => {
      const reading = new Reading(options.tools);
      if (options.startsThinking) reading.mode = "reasoning";
      // The prompt ends with the beginning of the first header.
      const first = [{ text: toTool, read: (at: Reading) => readHeader(at, toTool) }];
      return new MarkedParser(reading, { first, inContent: marks, inReasoning: marks });
    },
  };
}
