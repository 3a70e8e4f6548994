// Owns gpt-oss's way: an answer is messages, each with a header that says its channel and whom it is for. The header decides what
// the message's text is: thinking, content, or a call's arguments. Headers themselves are no text of the answer.
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

/** `read` is what has been read of the header. */
function* readHeader(reading: Reading, read: string): Wait<void> {
  const rest = yield* reading.until(message, maxHeaderLength);
  if (rest === null) return read === "" ? dropCutHeader(reading) : undefined;
  const header = read + rest;
  const recipient = /(?:^|\s)to=([^\s<]+)/.exec(header)?.[1] ?? null;
  if (recipient === null) {
    reading.mode = /(?:<\|channel\|>|^)analysis/.test(header) ? "reasoning" : "content";
    return reading.settle();
  }
  // What is for somebody unknown is shown as it is written, header and all.
  reading.mode = "content";
  const name = recipient.startsWith(tools) ? recipient.slice(tools.length) : null;
  if (name === null || !reading.tools.has(name)) return;
  if (yield* reading.callWithArguments(name, null)) yield* reading.mark(call);
}

/** A header within which the answer is over. */
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
  // The mark that ends a call ends the answer too: a token that is never text, and would have to be spelled here.
  close: "",
  before: (name) => `${name} <|constrain|>json${message}`,
  after: () => "",
};

/** `thinking` is what the template's analysis channel looks like from outside. */
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
      // The prompt's end has begun the first header.
      const first = [{ text: toTool, read: (at: Reading) => readHeader(at, toTool) }];
      return new MarkedParser(reading, { first, inContent: marks, inReasoning: marks });
    },
  };
}
