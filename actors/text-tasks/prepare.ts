// Preparation of a request: tokenizes the prompt, translates the grammar for the grammar engine, and plans how to parse the
// output. Runs on a text worker. Its errors reject the request. The result is plain data.
import { serialize } from "node:v8";
import type { OpenRequest, OutputGrammar, ToolUse } from "../../engines/generation.ts";
import type { GrammarNotation, GrammarSource } from "../../engines/grammar-source.ts";
import type { PreparedMedia, TileSpan } from "../../engines/media/media-tokens.ts";
import type { OutputConstraint, Translation } from "../../engines/text/constraints/translate.ts";
import { Translations } from "../../engines/text/constraints/translations.ts";
import { formatNamed } from "../../engines/text/parse/choose-format.ts";
import type { FormatName } from "../../engines/text/parse/tool-format.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { ReasoningLimit } from "../messages.ts";
import type { ChatPlan, TextModel } from "./text-model.ts";
import type { TextPhase } from "./text-phase.ts";

export interface PreparedPrompt {
  readonly tokens: Int32Array;
  /** Image tiles and audio windows among the tokens. */
  readonly tiles: readonly TileSpan[];
  readonly grammar: GrammarSource | null;
  /** Sequence breakers of the DRY penalty: tokens at which a repeated sequence ends. */
  readonly breakers: Int32Array;
  readonly reasoningBudget: ReasoningLimit | null;
  readonly answer: PreparedAnswer;
}

/** How to parse and check the text of each choice. */
export interface PreparedAnswer {
  /** Format of the model's tool calls; null = the prompt is not a chat. */
  readonly format: FormatName | null;
  /** true: the output may contain tool calls, reasoning or a text that opens the answer. false: all text is content. */
  readonly isParsed: boolean;
  readonly tools: ToolUse | null;
  /** Whether the prompt ends inside a reasoning section. */
  readonly startsThinking: boolean;
  /** Ids of control tokens whose text is part of the output. */
  readonly shownTokens: readonly number[];
  /** Checks of the output, see checkOutput; null = the grammar alone ensures a valid output. */
  readonly checks: OutputChecks | null;
}

export interface OutputChecks {
  /** Serialised constraints on the output (AskedOutput). */
  readonly asked: Uint8Array;
  readonly content: boolean;
  readonly calls: boolean;
}

/** Constraints that a request puts on its output, as plain data. */
interface AskedOutput {
  readonly grammar: OutputGrammar | null;
  readonly tools: ToolUse | null;
  readonly format: FormatName | null;
  /** Whether reasoning may precede the output. */
  readonly mayThink: boolean;
  /** Whether the prompt ends inside a reasoning section. */
  readonly hasBegun: boolean;
  /** Whether the prompt ends inside the content of an assistant message, which the output continues. */
  readonly continuesText: boolean;
  readonly notation: GrammarNotation;
}

const translations = new Translations();

/**
 * Prepares a request for generation: tokenizes the prompt and translates the constraints on the output. `enter` is called at
 * the start of each phase (see TextPhase).
 */
export function preparePrompt(
  request: OpenRequest,
  text: TextModel,
  enter: (phase: TextPhase) => void = () => {},
  media: readonly PreparedMedia[] = [],
): PreparedPrompt {
  const { prompt, tiles = [], chat } = text.prompt(request, enter, media);
  const { sampling, reasoningBudget, grammar, tools } = request;
  if (tiles.length > 0 && request.promptLogprobs !== null) {
    const message =
      "log probabilities of the prompt cannot be combined with images, videos or audio; remove one of them";
    throw new ServerError("invalid_value", message, { param: "prompt_logprobs" });
  }
  const asked = askedOf(request, chat, text.notation);
  if (asked.continuesText && (grammar?.kind === "json" || grammar?.kind === "json_schema")) throw jsonHasBegun(grammar);
  enter("grammar");
  const demand = demandOf(asked);
  if (reasoningBudget !== null && demand !== null) throw noRoomForThinking();
  if (request.ignoreEos && demand !== null) throw noFurtherText();
  const translation = demand === null ? null : translated(demand);
  const shownTokens = [...(chat?.shownTokens ?? [])];
  return {
    tokens: prompt,
    tiles,
    grammar: sourceOf(translation, shownTokens, grammar),
    breakers: tokensWithAny(text, sampling.dry?.sequenceBreakers ?? []),
    reasoningBudget:
      reasoningBudget === null || chat === null || chat.continuesText
        ? null
        : text.reasoningBudget(reasoningBudget, prompt, chat),
    answer: {
      format: asked.format,
      isParsed: tools !== null || (chat !== null && (chat.format.thinking !== null || chat.format.answerOpen !== "")),
      tools,
      startsThinking: chat?.opensThinking ?? false,
      shownTokens,
      checks: checksOf(translation, asked),
    },
  };
}

export interface OutputToCheck {
  /** The constraints on the output, deserialised from OutputChecks.asked. */
  readonly asked: AskedOutput;
  /** The whole content of an output, or the arguments of a tool call. */
  readonly text: string;
  /** Name of the called tool; null = the text is content. */
  readonly call: string | null;
}

/** Returns why an output violates its constraints; null = it is valid. */
export function checkOutput({ asked, text, call }: OutputToCheck): string | null {
  const demand = demandOf(asked);
  if (demand === null) return null;
  const { check, checkCall } = translated(demand);
  return call === null ? (check?.(text) ?? null) : (checkCall?.(call, text) ?? null);
}

function askedOf(
  { grammar, tools, prompt }: OpenRequest,
  chat: ChatPlan | null,
  notation: GrammarNotation,
): AskedOutput {
  const thinks = prompt.kind === "chat" && prompt.templateArguments.enableThinking !== false;
  const hasBegun = chat?.opensThinking ?? false;
  const format = chat === null ? null : { name: chat.format.name, thinking: chat.format.thinking };
  const continuesText = chat?.continuesText ?? false;
  const mayThink = (thinks && !continuesText) || hasBegun;
  return { grammar, tools, format, mayThink, hasBegun, continuesText, notation };
}

/**
 * Returns the constraint on the output; null = no constraint. Tool calls are constrained if a call is required, if a tool is
 * strict, or if the request has a grammar for the content.
 */
function demandOf({
  grammar,
  tools,
  format: name,
  mayThink,
  hasBegun,
  continuesText,
  notation,
}: AskedOutput): OutputConstraint | null {
  const demandsCalls =
    tools !== null && (tools.required || grammar !== null || tools.specs.some(({ strict }) => strict));
  if (grammar === null && !demandsCalls) return null;
  const format = name === null ? null : formatNamed(name);
  const calls =
    demandsCalls && format !== null
      ? { specs: tools.specs, syntax: format.syntax, required: tools.required, parallel: tools.parallel }
      : null;
  const tags = format?.thinking ?? null;
  return {
    grammar,
    calls,
    thinking: tags !== null && mayThink ? { tags, hasBegun } : null,
    // If the output continues an assistant message, the prompt already contains the fixed text with which the format begins an
    // answer.
    answerOpen: continuesText ? "" : (format?.answerOpen ?? ""),
    notation,
  };
}

/**
 * Translates a constraint for the grammar engine. An error without `param` gets the name of the request field that contains the
 * grammar, or `tools`.
 */
function translated(demand: OutputConstraint): Translation {
  try {
    return translations.of(demand);
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    throw new ServerError(error.code, error.message, { param: error.param ?? fieldOf(demand.grammar), cause: error });
  }
}

function sourceOf(
  translation: Translation | null,
  shownTokens: readonly number[],
  grammar: OutputGrammar | null,
): GrammarSource | null {
  if (translation === null) return null;
  const source = { ...translation.source, param: fieldOf(grammar) };
  return shownTokens.length === 0 ? source : { ...source, shownTokens };
}

function checksOf(translation: Translation | null, asked: AskedOutput): OutputChecks | null {
  if (translation === null || (translation.check === null && translation.checkCall === null)) return null;
  return {
    asked: new Uint8Array(serialize(asked)),
    content: translation.check !== null,
    calls: translation.checkCall !== null,
  };
}

function fieldOf(grammar: OutputGrammar | null): string {
  if (grammar === null) return "tools";
  if (grammar.kind === "json_schema") return grammar.field;
  return grammar.kind === "json" ? "response_format" : "grammar";
}

function jsonHasBegun(grammar: OutputGrammar): ServerError {
  const param = fieldOf(grammar);
  const problem = "cannot be combined with an assistant message at the end, because the whole JSON value is the output";
  return new ServerError("invalid_value", `${param} ${problem}; end the messages with a user message`, { param });
}

function noRoomForThinking(): ServerError {
  const param = "reasoning_budget";
  const message = `${param} cannot be combined with a grammar, a response format or tool calls that must be valid; remove one of them`;
  return new ServerError("invalid_value", message, { param });
}

function noFurtherText(): ServerError {
  const param = "ignore_eos";
  const message = `${param} cannot be combined with a grammar, a response format or tool calls that must be valid: the output ends where they end; remove one of them, or send tool_choice "none" if the tools are those of the server`;
  return new ServerError("invalid_value", message, { param });
}

function tokensWithAny(text: TextModel, breakers: readonly string[]): Int32Array {
  const tokens = new Set<number>();
  for (const breaker of breakers) for (const token of text.vocabulary.tokensContaining(breaker)) tokens.add(token);
  return Int32Array.from(tokens);
}
