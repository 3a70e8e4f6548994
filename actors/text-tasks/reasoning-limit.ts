// Reasoning limit: finds the tokens that begin and end the model's reasoning, so that the model's worker can end it early.
import type { ThinkingTags } from "../../engines/text/parse/tool-format.ts";
import type { Vocabulary } from "../../engines/text/tokenizer/vocabulary.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { ReasoningLimit } from "../messages.ts";

interface ReasoningModel {
  readonly id: string;
  readonly vocabulary: Vocabulary;
  /** Tokens of white space. */
  readonly blankTokens: Int32Array;
}

/**
 * Returns a limit of `tokens` reasoning tokens after a prompt; null = the prompt has already ended the reasoning, so the limit
 * cannot be exceeded. `hasBegun`: the prompt ends inside the reasoning. Throws `unsupported` if a reasoning tag is not a single
 * token.
 */
export function reasoningLimit(
  model: ReasoningModel,
  tags: ThinkingTags,
  tokens: number,
  prompt: Int32Array,
  hasBegun: boolean,
): ReasoningLimit | null {
  const { vocabulary } = model;
  const [begin, end] = [tagToken(model, tags.begin), tagToken(model, tags.end)];
  const last = prompt.findLast((token) => vocabulary.isControl(token) || vocabulary.pieceText(token)?.trim() !== "");
  if (last === end) return null;
  const none = new Int32Array(0);
  const opening = hasBegun ? { blanks: none, begin: none } : { blanks: model.blankTokens, begin: Int32Array.of(begin) };
  return { tokens, ...opening, end: Int32Array.of(end) };
}

/**
 * Returns the token of a reasoning tag. Throws `unsupported` for a tag of several tokens, because a model may merge the tag's
 * last token with the text that follows.
 */
function tagToken({ id, vocabulary }: ReasoningModel, tag: string): number {
  const control = vocabulary.controlTokens.find((token) => vocabulary.tokenText(token) === tag);
  const tokens = control === undefined ? vocabulary.encode(tag) : [control];
  if (tokens.length === 1) return tokens[0] as number;
  const param = "reasoning_budget";
  const message = `model "${id}" has no reasoning that can be limited: its vocabulary has no token ${tag}; remove ${param}`;
  throw new ServerError("unsupported", message, { param });
}
