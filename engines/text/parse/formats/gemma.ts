// Gemma format: calls are `call:name{key:value,…}` between tags, with special quotes around strings. Arguments are
// converted to JSON as they arrive. Arguments that are already JSON are accepted too, because constrained decoding
// produces them.
import { giveString } from "../bare-text.ts";
import type { Reading, Wait } from "../reading.ts";
import { jsonTyped } from "../typed-value.ts";
import type { MarkedFormat } from "./marked-format.ts";

interface Tags {
  readonly open: string;
  readonly close: string;
  readonly quote: string;
}

const maxDepth = 64;
const maxKeyLength = 256;
const maxSpace = 64;
const maxScalarLength = 512;
const jsonQuote = 0x22;
const comma = 0x2c;
const openBracket = 0x5b;
const closeBracket = 0x5d;
const openBrace = 0x7b;
const closeBrace = 0x7d;

function* readCall(reading: Reading, { close, quote }: Tags): Wait<void> {
  yield* reading.space();
  if (!(yield* reading.literal("call:"))) return;
  const found = yield* reading.toolName(["{"]);
  if (found === null) return;
  reading.position--;
  if (yield* isJson(reading)) {
    if (!(yield* reading.callWithArguments(found.name, null))) return;
  } else {
    reading.beginCall(found.name, null);
    if (!(yield* readMembers(reading, quote, 0))) return;
    reading.endCall();
  }
  yield* reading.mark(close);
}

/** True if the object at this position has a key in JSON quotes. Consumes no text. */
function* isJson(reading: Reading): Wait<boolean> {
  for (let ahead = 1; ahead <= maxSpace; ahead++) {
    while (reading.position + ahead >= reading.text.length) {
      if (reading.isOver) return false;
      yield;
    }
    const character = reading.text.charAt(reading.position + ahead);
    if (character.trim() !== "") return character.charCodeAt(0) === jsonQuote;
  }
  return false;
}

function* readMembers(reading: Reading, quote: string, depth: number): Wait<boolean> {
  reading.position++;
  if (yield* readEmpty(reading, closeBrace, "{}")) return true;
  let separator = "{";
  do {
    yield* reading.space();
    const key = yield* readKey(reading, quote);
    if (key === null) return false;
    reading.giveArguments(`${separator}${JSON.stringify(key)}: `);
    separator = ", ";
    if (!(yield* readValue(reading, quote, depth))) return false;
  } while (yield* readComma(reading));
  return yield* readEnd(reading, closeBrace, "}");
}

function* readItems(reading: Reading, quote: string, depth: number): Wait<boolean> {
  reading.position++;
  if (yield* readEmpty(reading, closeBracket, "[]")) return true;
  let separator = "[";
  do {
    reading.giveArguments(separator);
    separator = ", ";
    if (!(yield* readValue(reading, quote, depth))) return false;
  } while (yield* readComma(reading));
  return yield* readEnd(reading, closeBracket, "]");
}

function* readKey(reading: Reading, quote: string): Wait<string | null> {
  if (!(yield* reading.literal(quote))) return (yield* reading.until(":", maxKeyLength))?.trim() ?? null;
  const key = yield* reading.until(quote, maxKeyLength);
  yield* reading.space();
  return (yield* reading.literal(":")) ? key : null;
}

function* readValue(reading: Reading, quote: string, depth: number): Wait<boolean> {
  const code = yield* reading.space();
  if (code < 0 || depth === maxDepth) return false;
  if (code === openBrace) return yield* readMembers(reading, quote, depth + 1);
  if (code === openBracket) return yield* readItems(reading, quote, depth + 1);
  if (yield* reading.literal(quote)) return yield* giveString(reading, quote, "");
  return yield* readScalar(reading);
}

/** Reads a number, a JSON word (true, false, null), or an unquoted string. */
function* readScalar(reading: Reading): Wait<boolean> {
  let text = "";
  for (;;) {
    const code = yield* reading.next();
    if (code === comma || code === closeBrace || code === closeBracket) break;
    if (code < 0 || text.length === maxScalarLength) return false;
    text += reading.text.charAt(reading.position++);
  }
  if (text.trim() === "") return false;
  reading.giveArguments(jsonTyped(text.trim(), null));
  return true;
}

function* readEmpty(reading: Reading, closer: number, json: string): Wait<boolean> {
  if ((yield* reading.space()) !== closer) return false;
  return yield* readEnd(reading, closer, json);
}

function* readComma(reading: Reading): Wait<boolean> {
  if ((yield* reading.space()) !== comma) return false;
  reading.position++;
  return true;
}

function* readEnd(reading: Reading, closer: number, json: string): Wait<boolean> {
  if ((yield* reading.next()) !== closer) return false;
  reading.position++;
  reading.giveArguments(json);
  return true;
}

function format(name: string, tags: Tags): MarkedFormat {
  const { open, close, quote } = tags;
  return {
    name,
    syntax: {
      trigger: open,
      open,
      between: close + open,
      close,
      before: (tool) => `call:${tool}`,
      after: () => "",
    },
    marks: [{ text: open, read: (reading) => readCall(reading, tags) }],
    texts: [quote],
  };
}

export const gemma = format("gemma", { open: "<|tool_call>", close: "<tool_call|>", quote: '<|"|>' });

export const functionGemma = format("functiongemma", {
  open: "<start_function_call>",
  close: "<end_function_call>",
  quote: "<escape>",
});
