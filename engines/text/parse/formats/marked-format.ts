// Marked format: the common part of most tool-call formats. Reasoning is between two tags, and a call begins with a
// tag.
import { type Mark, MarkedParser } from "../output-parser.ts";
import { Reading, type Wait } from "../reading.ts";
import type { CallSyntax, ThinkingTags, ToolFormat } from "../tool-format.ts";

export interface MarkedFormat {
  readonly name: string;
  readonly syntax: CallSyntax;
  /** Tags that begin a call. They are ignored if the request has no tools. */
  readonly marks: readonly Mark[];
  /** Other tags that may occur in content. */
  readonly plainMarks?: readonly Mark[];
  /** Tags that are recognized only before content. White space, reasoning and calls may precede them. */
  readonly firstMarks?: (reading: Reading) => readonly Mark[];
  /** Other fixed texts of calls that may be control tokens. */
  readonly texts?: readonly string[];
  readonly answerOpen?: string;
}

/** Creates a format in which optional reasoning comes before content and calls. */
export function markedFormat(format: MarkedFormat, thinking: ThinkingTags | null): ToolFormat {
  const { name, syntax, marks } = format;
  const inReasoning = thinking === null ? [] : [turnMark(thinking.end, "content")];
  const begins = thinking === null ? [] : [turnMark(thinking.begin.trim(), "reasoning")];
  return {
    name,
    thinking,
    syntax,
    answerOpen: format.answerOpen ?? "",
    shownTokens: tokenNames([
      ...(thinking === null ? [] : [thinking.begin, thinking.end]),
      ...marks.map(({ text }) => text),
      ...(format.texts ?? []),
      ...[syntax.open, syntax.before("f"), syntax.after("f"), syntax.between ?? "", syntax.close],
    ]),
    createParser: ({ tools, startsThinking }) => {
      const reading = new Reading(tools);
      if (startsThinking && thinking !== null) think(reading);
      return new MarkedParser(reading, {
        first: [...begins, ...(format.firstMarks?.(reading) ?? [])],
        inContent: [...(tools.length > 0 ? marks : []), ...(format.plainMarks ?? [])],
        inReasoning,
      });
    },
  };
}

/** Returns a tag that begins or ends the reasoning. */
export function turnMark(text: string, mode: "content" | "reasoning"): Mark {
  return { text, read: (reading) => turn(reading, mode) };
}

// biome-ignore lint/correctness/useYield: this syntax never waits for text.
function* turn(reading: Reading, mode: "content" | "reasoning"): Wait<void> {
  if (mode === "reasoning") think(reading);
  reading.mode = mode;
  reading.settle();
}

function think(reading: Reading): void {
  reading.mode = "reasoning";
  reading.hasThought = true;
}

/**
 * Returns the substrings of `texts` that look like control tokens. Whether they are control tokens depends on the
 * vocabulary.
 */
export function tokenNames(texts: readonly string[]): readonly string[] {
  return [...new Set(texts.flatMap((text) => text.match(/<[^<>\s=]+>|\[[A-Z_/]+\]/g) ?? []))];
}
