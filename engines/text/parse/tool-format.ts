// Tool-call format: the interface between the parsers that read calls, the grammars that constrain them and the code that
// consumes the output. One format per model family; choose-format.ts picks it by the chat template.
import type { ToolSpec } from "../../generation.ts";

/** The texts around thinking. */
export interface ThinkingTags {
  readonly begin: string;
  readonly end: string;
}

/** A part of the output. `at` counts the characters of all pushed text; the part is a verbatim slice from there. */
export type OutputPart =
  | { readonly kind: "content" | "reasoning"; readonly text: string; readonly at: number }
  /** A call begins. `id` is null if the model gives none. */
  | { readonly kind: "call"; readonly name: string; readonly id: string | null }
  /** A piece of the arguments of the last call: JSON text. */
  | { readonly kind: "arguments"; readonly text: string }
  /** The arguments of the last call are complete, valid JSON. */
  | { readonly kind: "call-end" }
  /** The last call is not a call. `text` is everything written of it, including its marks; content follows. */
  | { readonly kind: "call-failed"; readonly text: string };

/** Parses one output. All pushed text is emitted as content, as reasoning or as part of a call. */
export interface OutputParser {
  /** The text pushed last is thinking, or may be. */
  readonly isThinking: boolean;
  push(text: string): readonly OutputPart[];
  /** The output is over, complete or not; complete arguments are a call. */
  finish(): readonly OutputPart[];
}

export interface ParserOptions {
  /** Tools of the request; if empty, nothing is read as a call. */
  readonly tools: readonly ToolSpec[];
  /** The end of the prompt has begun thinking. */
  readonly startsThinking: boolean;
}

/** How constrained decoding writes calls: always with JSON arguments. The format's parser reads them. */
export interface CallSyntax {
  /**
   * The text that begins calls and occurs in no other output, so free text ends where it comes. null if only a call that is the
   * whole output is recognized.
   */
  readonly trigger: string | null;
  /** Text before the first call; begins with the trigger. */
  readonly open: string;
  /** Between two calls; null if an output has only one. */
  readonly between: string | null;
  /** After the last call. */
  readonly close: string;
  /** `before`: a call's text up to its arguments; `after`: its text after them. */
  before(name: string): string;
  after(name: string): string;
}

/** Identifies a format, as plain data. */
export interface FormatName {
  readonly name: string;
  readonly thinking: ThinkingTags | null;
}

export interface ToolFormat extends FormatName {
  /** Names of the control tokens that the parser must see as text; a vocabulary may lack some. */
  readonly shownTokens: readonly string[];
  readonly syntax: CallSyntax;
  /** Text before output that is not a call, which its grammar must allow first; usually "". */
  readonly answerOpen: string;
  createParser(options: ParserOptions): OutputParser;
}
