// Tagged parameter formats: each argument of a call stands between tags. Qwen3-Coder and later models, Seed, MiniMax and GLM.
// Arguments are converted to JSON as they arrive. All formats also read JSON calls, because constrained decoding produces them.
import type { ToolSpec } from "../../../generation.ts";
import { giveString, readText } from "../bare-text.ts";
import type { Mark } from "../output-parser.ts";
import type { Reading, Wait } from "../reading.ts";
import { jsonTyped, mayOnlyBeString, parameterTypes } from "../typed-value.ts";
import { readCallsUntil, taggedJson } from "./json-calls.ts";
import type { MarkedFormat } from "./marked-format.ts";

interface Tags {
  /** Texts around calls. */
  readonly open: string;
  readonly close: string;
  /** Around a name. If `nameOpen` is empty, the name's end belongs to the text that follows and is not consumed. */
  readonly nameOpen: string;
  readonly nameEnds: readonly string[];
  readonly callEnd: string;
  readonly keyOpen: string;
  readonly keyEnd: string;
  /** Text before a value, behind its key's end and white space. */
  readonly valueOpen: string;
  readonly valueEnd: string;
}

const openBrace = 0x7b;
/** A line break after a value's opening tag and one before its closing tag belong to the tags. */
const padding = "\n";
const maxKeyLength = 256;

/** Reads calls after `open`, or after `nameOpen` (`isNamed`) if the model omits `open`. */
function* readCalls(reading: Reading, tags: Tags, isNamed: boolean): Wait<void> {
  if (!isNamed) {
    if ((yield* reading.space()) === openBrace) return yield* readCallsUntil(reading, jsonClose(tags));
    if (!(yield* reading.literal(tags.nameOpen))) return;
  }
  do {
    const found = yield* reading.toolName(tags.nameEnds);
    if (found === null) return;
    if (tags.nameOpen === "") reading.position -= found.ending.length;
    const tool = reading.tools.get(found.name);
    if (tool === undefined || !(yield* readCall(reading, tool, tags))) return;
    yield* reading.space();
  } while (tags.nameOpen !== "" && (yield* reading.literal(tags.nameOpen)));
  yield* reading.mark(tags.close);
}

/** The mark that ends a JSON call: that of the outermost tag. */
function jsonClose({ close, callEnd }: Tags): string {
  return close === "" ? callEnd : close;
}

/** Reads a call after its name. */
function* readCall(reading: Reading, tool: ToolSpec, tags: Tags): Wait<boolean> {
  reading.beginCall(tool.name, null);
  let separator = "{";
  for (;;) {
    yield* reading.space();
    if (yield* reading.literal(tags.callEnd)) {
      reading.giveArguments(separator === "{" ? "{}" : "}");
      reading.endCall();
      return true;
    }
    if (!(yield* reading.literal(tags.keyOpen))) return false;
    const key = yield* reading.until(tags.keyEnd, maxKeyLength);
    if (key === null) return false;
    if (tags.valueOpen !== "") {
      yield* reading.space();
      if (!(yield* reading.literal(tags.valueOpen))) return false;
    }
    reading.giveArguments(`${separator}${JSON.stringify(key)}: `);
    separator = ", ";
    if (!(yield* readValue(reading, parameterTypes(tool.parameters, key), tags.valueEnd))) return false;
  }
}

/** A value that can only be a string is given as it arrives. Any other value must be complete before its type is known. */
function* readValue(reading: Reading, types: ReadonlySet<string> | null, end: string): Wait<boolean> {
  if (mayOnlyBeString(types)) return yield* giveString(reading, end, padding);
  const pieces: string[] = [];
  if (!(yield* readText(reading, end, padding, (piece) => pieces.push(piece)))) return false;
  reading.giveArguments(jsonTyped(pieces.join(""), types));
  return true;
}

function format(name: string, tags: Tags): MarkedFormat {
  const marks: Mark[] = [{ text: tags.open, read: (reading) => readCalls(reading, tags, false) }];
  if (tags.nameOpen !== "") marks.push({ text: tags.nameOpen, read: (reading) => readCalls(reading, tags, true) });
  const { open } = tags;
  const close = jsonClose(tags);
  return {
    name,
    syntax: { ...taggedJson, trigger: open, open: `${open}\n`, between: `\n${close}\n${open}\n`, close: `\n${close}` },
    marks,
    texts: [tags.callEnd, tags.keyOpen, tags.keyEnd, tags.valueOpen, tags.valueEnd],
  };
}

const functionTags = {
  nameOpen: "<function=",
  nameEnds: [">"],
  callEnd: "</function>",
  keyOpen: "<parameter=",
  keyEnd: ">",
  valueOpen: "",
  valueEnd: "</parameter>",
};

export const coder = format("coder", { ...functionTags, open: "<tool_call>", close: "</tool_call>" });

export const seed = format("seed", { ...functionTags, open: "<seed:tool_call>", close: "</seed:tool_call>" });

export const miniMax = format("minimax", {
  open: "<minimax:tool_call>",
  close: "</minimax:tool_call>",
  nameOpen: '<invoke name="',
  nameEnds: ['">'],
  callEnd: "</invoke>",
  keyOpen: '<parameter name="',
  keyEnd: '">',
  valueOpen: "",
  valueEnd: "</parameter>",
});

export const glm = format("glm", {
  open: "<tool_call>",
  close: "",
  nameOpen: "",
  nameEnds: ["\n", "<"],
  callEnd: "</tool_call>",
  keyOpen: "<arg_key>",
  keyEnd: "</arg_key>",
  valueOpen: "<arg_value>",
  valueEnd: "</arg_value>",
});
