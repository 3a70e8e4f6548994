// Owns what a way of writing calls is, between the parsers that read it, the grammars that demand it and whoever follows an
// answer. One format a model family; choose-format.ts picks by the chat template.
import type { ToolSpec } from "../../generation.ts";

/** The texts around an answer's thinking. */
export interface ThinkingTags {
  readonly begin: string;
  readonly end: string;
}

/** What a text turns out to be. `at` counts characters of all that was pushed: the part is a verbatim slice from there. */
export type OutputPart =
  | { readonly kind: "content" | "reasoning"; readonly text: string; readonly at: number }
  /** A call begins. Its id, where the model gives it one. */
  | { readonly kind: "call"; readonly name: string; readonly id: string | null }
  /** A piece of the arguments of the call begun last: JSON text. */
  | { readonly kind: "arguments"; readonly text: string }
  /** The arguments of the call begun last are whole, and JSON. */
  | { readonly kind: "call-end" }
  /** The call begun last is none. `text` is all that was written of it, its marks included; what is behind that is content. */
  | { readonly kind: "call-failed"; readonly text: string };

/** Reads one answer. Whatever is pushed comes out again: as content, as reasoning, or as (part of) a call. */
export interface OutputParser {
  /** What was pushed last belongs to thinking, or might. */
  readonly isThinking: boolean;
  push(text: string): readonly OutputPart[];
  /** The answer is over, whether or not it ended by itself: whole arguments are a call. */
  finish(): readonly OutputPart[];
}

export interface ParserOptions {
  /** What may be called; empty where the request has no tools: then nothing is read as a call. */
  readonly tools: readonly ToolSpec[];
  /** The prompt ends inside thinking that it has begun itself. */
  readonly startsThinking: boolean;
}

/** How calls are written where a grammar demands them: always with arguments as JSON. The format's parser reads it. */
export interface CallSyntax {
  /**
   * What calls begin with and no other answer may hold: free text goes on until it comes. null where a call is known only by
   * being the whole answer.
   */
  readonly trigger: string | null;
  /** Before the first call; begins with the trigger. */
  readonly open: string;
  /** Between two calls; null where an answer holds one. */
  readonly between: string | null;
  /** After the last. */
  readonly close: string;
  /** Up to the arguments of a call, and from there to the call's end. */
  before(name: string): string;
  after(name: string): string;
}

/** What tells a format from all others, as plain data. */
export interface FormatName {
  readonly name: string;
  readonly thinking: ThinkingTags | null;
}

export interface ToolFormat extends FormatName {
  /** Control tokens by name that the parser must see in the text; a vocabulary may lack some. */
  readonly shownTokens: readonly string[];
  readonly syntax: CallSyntax;
  /** What an answer that is no call begins with, which a grammar for one has to allow first; mostly nothing. */
  readonly answerOpen: string;
  createParser(options: ParserOptions): OutputParser;
}
