// Tool-call format: the interface between parsers that read calls, grammars that constrain calls, and the code that
// consumes the parsed output. There is one format per model family. choose-format.ts selects it from the chat
// template.
import type { ToolSpec } from "../../generation.ts";

/** The tags before and after a model's reasoning. */
export interface ThinkingTags {
  readonly begin: string;
  readonly end: string;
}

/**
 * A part of the output. `at` is the position of the part, counted in characters of all pushed text. The part is an
 * exact slice of that text.
 */
export type OutputPart =
  | { readonly kind: "content" | "reasoning"; readonly text: string; readonly at: number }
  /** A call begins. `id` is null if the model writes no id. */
  | { readonly kind: "call"; readonly name: string; readonly id: string | null }
  /** A piece of the arguments of the last call, as JSON text. */
  | { readonly kind: "arguments"; readonly text: string }
  /** The arguments of the last call are complete, valid JSON. */
  | { readonly kind: "call-end" }
  /** The last call is not valid. `text` is the whole text of the call, including its tags. The text after it is content. */
  | { readonly kind: "call-failed"; readonly text: string }
  /** The token limit has cut the last call. Its arguments are the beginning of JSON text. */
  | { readonly kind: "call-cut" }
  /** Omitted text: the beginning of a call or of a tag that the token limit has cut. */
  | { readonly kind: "cut" };

/** Parses one output. All pushed text is emitted as content, as reasoning or as part of a call, unless it is cut. */
export interface OutputParser {
  /** True if the text pushed last is thinking or may be thinking. */
  readonly isThinking: boolean;
  push(text: string): readonly OutputPart[];
  /**
   * Ends the output, which may be incomplete. A call with complete arguments is valid. `isCut`: the token limit has
   * cut the output, so its last text may be the beginning of a call or of a tag. Such a beginning is not emitted as
   * text.
   */
  finish(isCut?: boolean): readonly OutputPart[];
}

export interface ParserOptions {
  /** Tools of the request. If empty, no text is read as a call. */
  readonly tools: readonly ToolSpec[];
  /** True if the prompt ends with the begin tag of thinking, so that the output starts with thinking. */
  readonly startsThinking: boolean;
}

/**
 * Syntax of the calls that constrained decoding produces, always with JSON arguments. The format's parser reads such
 * calls.
 */
export interface CallSyntax {
  /**
   * Text that begins the first call. The model writes it only before calls, so the text before a call ends here.
   * null: the format has no such text, so a call is recognized only if it is the whole output.
   */
  readonly trigger: string | null;
  /** Text before the first call. It begins with the trigger. */
  readonly open: string;
  /** Text between two calls; null if an output may have only one call. */
  readonly between: string | null;
  /** Text after the last call. */
  readonly close: string;
  /**
   * `before` returns the text of a call up to its arguments; `after` returns the text of a call after its arguments.
   */
  before(name: string): string;
  after(name: string): string;
}

/** Name and thinking tags of a format: plain data that can be sent to another thread. */
export interface FormatName {
  readonly name: string;
  readonly thinking: ThinkingTags | null;
}

export interface ToolFormat extends FormatName {
  /** Names of the control tokens that the parser must receive as text. A vocabulary may lack some of these tokens. */
  readonly shownTokens: readonly string[];
  readonly syntax: CallSyntax;
  /** Text before output that is not a call; usually "". The grammar of such output must allow this text first. */
  readonly answerOpen: string;
  createParser(options: ParserOptions): OutputParser;
}
