// Owns what the model is asked for a request: the prompt as tokens, the sampling, the grammar and the end of thinking in the
// model's terms; and how its text is then to be read. Called once a run; what it throws refuses the request.
import type { GenerateRequest, OutputGrammar } from "../../engines/chat.ts";
import type { OutputDemand, Translation } from "../../engines/grammar/translate.ts";
import { Translations } from "../../engines/grammar/translations.ts";
import type { CallSyntax, OutputParser } from "../../engines/parse/tool-format.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { SequenceJob } from "../messages.ts";
import type { ChatPlan, TextModel } from "./text-model.ts";

export interface Plan {
  readonly prompt: Int32Array;
  /** What every choice is asked alike. The choices share one prompt, and so does the message on a link between threads. */
  readonly job: Omit<SequenceJob, "id" | "choice" | "adapter" | "promptLogprobs" | "series">;
  readonly answer: AnswerPlan;
}

/** How the text of each choice is to be read. */
export interface AnswerPlan {
  /** null where all text is content. */
  readonly createParser: (() => OutputParser) | null;
  /** Control tokens that come out as text. */
  readonly shownTokens: ReadonlySet<number>;
  /** The answer is over with its first call. */
  readonly endsWithCall: boolean;
  /** Why a whole content is no answer, or null; where the grammar alone does not ensure that it is one. */
  readonly check: ((text: string) => string | null) | null;
  readonly checkCall: ((name: string, args: string) => string | null) | null;
  readonly writeCall: (name: string, args: string) => string;
}

const translations = new Translations();
const noTokens: ReadonlySet<number> = new Set();

export function planRun(request: GenerateRequest, text: TextModel): Plan {
  const { prompt, chat } = text.prompt(request);
  const { sampling, reasoningBudget } = request;
  const demand = demandOf(request, chat);
  if (reasoningBudget !== null && demand !== null) throw noRoomForThinking();
  const translation = demand === null ? null : translated(demand);
  const shownTokens = chat?.shownTokens ?? noTokens;
  // Ranking needs the logprobs of what was chosen, whether or not the client does.
  const isRanked = request.candidates > request.choices;
  return {
    prompt,
    answer: answerPlan(request, chat, translation),
    job: {
      client: request.client,
      prompt,
      maxNewTokens: request.maxTokens,
      ignoreEos: request.ignoreEos,
      sampling: isRanked && sampling.topLogprobs === null ? { ...sampling, topLogprobs: 0 } : sampling,
      breakers: tokensWithAny(text, sampling.dry?.sequenceBreakers ?? []),
      priority: request.priority,
      grammar:
        translation === null || shownTokens.size === 0
          ? (translation?.source ?? null)
          : { ...translation.source, shownTokens: [...shownTokens] },
      reasoningBudget: reasoningBudget === null ? null : text.reasoningBudget(reasoningBudget, prompt),
      receivedAt: request.receivedAt,
    },
  };
}

function answerPlan(request: GenerateRequest, chat: ChatPlan | null, translation: Translation | null): AnswerPlan {
  const { tools } = request;
  const format = chat?.format ?? null;
  const readsCalls = tools !== null || (format?.thinking ?? null) !== null;
  const startsThinking = chat?.opensThinking ?? false;
  const options = { tools: tools?.specs ?? [], startsThinking };
  return {
    createParser: format !== null && readsCalls ? () => format.createParser(options) : null,
    shownTokens: chat?.shownTokens ?? noTokens,
    endsWithCall: tools?.parallel === false,
    check: translation?.check ?? null,
    checkCall: translation?.checkCall ?? null,
    writeCall: (name, args) => (format === null ? args : writtenCall(format.syntax, name, args)),
  };
}

function writtenCall({ open, close, before, after }: CallSyntax, name: string, args: string): string {
  return open + before(name) + args + after(name) + close;
}

/** null where anything may come. A call has to be well-formed where one must come, and where nothing else is free either. */
function demandOf({ grammar, tools, prompt }: GenerateRequest, chat: ChatPlan | null): OutputDemand | null {
  const demandsCalls =
    tools !== null && (tools.required || grammar !== null || tools.specs.some(({ strict }) => strict));
  if (grammar === null && !demandsCalls) return null;
  const calls =
    demandsCalls && chat !== null
      ? { specs: tools.specs, syntax: chat.format.syntax, required: tools.required, parallel: tools.parallel }
      : null;
  const thinks = prompt.kind === "chat" && prompt.templateArguments.enableThinking !== false;
  const tags = chat?.format.thinking ?? null;
  const hasBegun = chat?.opensThinking ?? false;
  return {
    grammar,
    calls,
    thinking: tags !== null && (thinks || hasBegun) ? { tags, hasBegun } : null,
    answerOpen: chat?.format.answerOpen ?? "",
  };
}

/** Whatever refuses the grammar, here or at the model's place, names the field it came in. */
function translated(demand: OutputDemand): Translation {
  const param = fieldOf(demand.grammar);
  try {
    const translation = translations.of(demand);
    return { ...translation, source: { ...translation.source, param } };
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    throw new ServerError(error.code, error.message, { param: error.param ?? param, cause: error });
  }
}

function fieldOf(grammar: OutputGrammar | null): string {
  if (grammar === null) return "tools";
  if (grammar.kind === "json_schema") return grammar.field;
  return grammar.kind === "json" ? "response_format" : "grammar";
}

function noRoomForThinking(): ServerError {
  const param = "reasoning_budget";
  const message = `${param} cannot be combined with a grammar, a response format or calls that must be valid, which leave no room for it`;
  return new ServerError("invalid_value", message, { param });
}

function tokensWithAny(text: TextModel, breakers: readonly string[]): Int32Array {
  const tokens = new Set<number>();
  for (const breaker of breakers) for (const token of text.vocabulary.tokensContaining(breaker)) tokens.add(token);
  return Int32Array.from(tokens);
}
