// Parser harness: runs an output through a parser in one piece, cut in two at any position, and character by character.
// Collects the parsed result.
import assert from "node:assert/strict";
import type { ToolSpec } from "../../../../engines/generation.ts";
import type { OutputPart, ToolFormat } from "../../../../engines/text/parse/tool-format.ts";

export function tool(name: string, properties: Record<string, unknown> = {}): ToolSpec {
  return { name, description: null, parameters: { type: "object", properties }, strict: false };
}

/** The tools of every test. */
export const tools: readonly ToolSpec[] = [
  tool("get_weather", { city: { type: "string" }, days: { type: "integer" }, metric: { type: "boolean" } }),
  tool("get_weather_alerts"),
  tool("write_file", { path: { type: "string" }, text: { type: "string" }, tags: { type: "array" } }),
  tool("get_time"),
];

export interface Answer {
  readonly content: string;
  readonly reasoning: string;
  readonly calls: readonly { readonly name: string; readonly id: string | null; readonly arguments: string }[];
  readonly failed: readonly string[];
}

export interface RunOptions {
  readonly tools?: readonly ToolSpec[];
  readonly startsThinking?: boolean;
  /** Whether the token limit cut the output off. */
  readonly isCut?: boolean;
}

/** Returns all parts of an output that arrives in these pieces. Asserts the invariants that every output must fulfil. */
export function partsOf(format: ToolFormat, pieces: readonly string[], options: RunOptions = {}): OutputPart[] {
  const parser = format.createParser({
    tools: options.tools ?? tools,
    startsThinking: options.startsThinking ?? false,
  });
  const parts = [...pieces.flatMap((piece) => parser.push(piece)), ...parser.finish(options.isCut ?? false)];
  checkParts(parts, pieces.join(""));
  return parts;
}

/**
 * Asserts that the parts' texts are substrings of the output in order, that calls do not overlap, and that the arguments of
 * complete calls are JSON objects.
 */
function checkParts(parts: readonly OutputPart[], text: string): void {
  let end = 0;
  let open: string | null = null;
  for (const part of parts) {
    if (part.kind === "content" || part.kind === "reasoning") {
      assert.equal(open, null, "text within a call");
      assert.notEqual(part.text, "", "an empty part");
      assert.ok(part.at >= end, "text that is emitted twice");
      assert.equal(text.slice(part.at, part.at + part.text.length), part.text, "text that is not verbatim");
      end = part.at + part.text.length;
    } else if (part.kind === "call") {
      assert.equal(open, null, "a call within a call");
      open = "";
    } else if (part.kind !== "cut") {
      assert.ok(open !== null, `${part.kind} outside of a call`);
      if (part.kind === "arguments") open += part.text;
      else {
        if (part.kind === "call-end") assert.equal(typeof JSON.parse(open), "object");
        if (part.kind === "call-failed") assert.ok(text.includes(part.text), "a failed call that is not verbatim");
        open = null;
      }
    }
  }
  assert.equal(open, null, "a call that does not end");
}

export function answerOf(parts: readonly OutputPart[]): Answer {
  const calls: { name: string; id: string | null; arguments: string }[] = [];
  const failed: string[] = [];
  for (const part of parts) {
    if (part.kind === "call") calls.push({ name: part.name, id: part.id, arguments: "" });
    const last = calls.at(-1);
    if (part.kind === "arguments" && last !== undefined) last.arguments += part.text;
    if (part.kind !== "call-failed") continue;
    calls.pop();
    failed.push(part.text);
  }
  const textOf = (kind: OutputPart["kind"]) =>
    parts.map((part) => (part.kind === kind && "text" in part ? part.text : "")).join("");
  return { content: textOf("content"), reasoning: textOf("reasoning"), calls, failed };
}

/**
 * Returns the parsed output. Asserts that it is the same for the output in one piece, cut in two at any position, and
 * character by character.
 */
export function read(format: ToolFormat, text: string, options: RunOptions = {}): Answer {
  const whole = answerOf(partsOf(format, [text], options));
  for (let cut = 1; cut < text.length; cut++) {
    const pieces = [text.slice(0, cut), text.slice(cut)];
    assert.deepEqual(answerOf(partsOf(format, pieces, options)), whole, `cut at ${cut}`);
  }
  assert.deepEqual(answerOf(partsOf(format, text.split(""), options)), whole, "character by character");
  return whole;
}
