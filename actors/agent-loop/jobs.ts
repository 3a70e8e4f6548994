// Owns what the model is asked for a request: the prompt as tokens, and the sampling, the grammar and the end of thinking in
// the model's terms. Called once a run; what it throws refuses the request.
import type { GenerateRequest, OutputGrammar } from "../../engines/chat.ts";
import type { Translation } from "../../engines/grammar/translate.ts";
import { Translations } from "../../engines/grammar/translations.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { SequenceJob } from "../messages.ts";
import type { TextModel } from "./text-model.ts";

export interface Plan {
  readonly prompt: Int32Array;
  /** What every choice is asked alike. The choices share one prompt, and so does the message on a link between threads. */
  readonly job: Omit<SequenceJob, "id" | "choice" | "promptLogprobs">;
  /** Why a whole output is no answer, or null; where the grammar alone does not ensure that it is one. */
  readonly check: ((text: string) => string | null) | null;
}

const translations = new Translations();

export function planRun(request: GenerateRequest, text: TextModel): Plan {
  const prompt = text.promptTokens(request);
  const { sampling, reasoningBudget } = request;
  if (reasoningBudget !== null && request.grammar !== null) throw noRoomForThinking();
  const grammar = request.grammar === null ? null : translated(request.grammar);
  // Ranking needs the logprobs of what was chosen, whether or not the client does.
  const isRanked = request.candidates > request.choices;
  return {
    prompt,
    check: grammar?.check ?? null,
    job: {
      client: request.client,
      prompt,
      maxNewTokens: request.maxTokens,
      ignoreEos: request.ignoreEos,
      adapter: 0,
      sampling: isRanked && sampling.topLogprobs === null ? { ...sampling, topLogprobs: 0 } : sampling,
      breakers: tokensWithAny(text, sampling.dry?.sequenceBreakers ?? []),
      priority: request.priority,
      grammar: grammar?.source ?? null,
      reasoningBudget: reasoningBudget === null ? null : text.reasoningBudget(reasoningBudget, prompt),
    },
  };
}

/** Whatever refuses the grammar, here or at the model's place, names the field it came in. */
function translated(grammar: OutputGrammar): Translation {
  const param = fieldOf(grammar);
  try {
    const { source, check } = translations.of(grammar);
    return { source: { ...source, param }, check };
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    throw new ServerError(error.code, error.message, { param, cause: error });
  }
}

function fieldOf(grammar: OutputGrammar): string {
  if (grammar.kind === "json_schema") return grammar.field;
  return grammar.kind === "json" ? "response_format" : "grammar";
}

function noRoomForThinking(): ServerError {
  const param = "reasoning_budget";
  const message = `${param} cannot be combined with a grammar or a response format, which leave no room for thinking`;
  return new ServerError("invalid_value", message, { param });
}

function tokensWithAny(text: TextModel, breakers: readonly string[]): Int32Array {
  const tokens = new Set<number>();
  for (const breaker of breakers) for (const token of text.vocabulary.tokensContaining(breaker)) tokens.add(token);
  return Int32Array.from(tokens);
}
