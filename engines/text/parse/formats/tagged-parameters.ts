// Tagged parameter formats: each argument of a call is between tags. Used by Qwen3-Coder and later Qwen models, Seed,
// MiniMax and GLM. Arguments are converted to JSON as they arrive. All of these formats also accept JSON calls, because
// constrained decoding produces them.
import type { ToolSpec } from "../../../generation.ts";
import { giveString, readText } from "../bare-text.ts";
import type { Mark } from "../output-parser.ts";
import type { Reading, Wait } from "../reading.ts";
import { jsonTyped, mayOnlyBeString, parameterTypes } from "../typed-value.ts";
import { readCallsUntil, taggedJson } from "./json-calls.ts";
import type { MarkedFormat } from "./marked-format.ts";

interface Tags {
  /** Texts before and after the calls. */
  readonly open: string;
  readonly close: string;
  /**
   * Texts around a tool's name. If `nameOpen` is empty, the text after the name also begins the first argument or
   * ends the call, so it is read again as part of the argument or of the call.
   */
  readonly nameOpen: string;
  readonly nameEnds: readonly string[];
  readonly callEnd: string;
  readonly keyOpen: string;
  readonly keyEnd: string;
  /** Text before a value. It follows the end of the key and white space. */
  readonly valueOpen: string;
  readonly valueEnd: string;
}

const openBrace = 0x7b;
/** Line break after the opening tag and before the closing tag of a value. It is not part of the value. */
const padding = "\n";
const maxKeyLength = 256;

/** Reads the calls that follow `open`. `isNamed`: the model omitted `open`, and `nameOpen` was read instead. */
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

/** Returns the text that ends a JSON call: the closing text of the outermost tag. */
function jsonClose({ close, callEnd }: Tags): string {
  return close === "" ? callEnd : close;
}

/** Reads the rest of a call after its name. */
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

/**
 * Reads a value. A value that can only be a string is emitted as it arrives. Any other value is read completely first,
 * because its type depends on the whole text.
 */
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
