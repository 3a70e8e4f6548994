// Owns one answer: the request the settings make of a conversation, and its events as text that is written while it comes.
// Called by the one-shot mode and by the REPL.
import type { Inference } from "../../actors/api/inference.ts";
import {
  type ChatMessage,
  type FinishReason,
  type GenerateRequest,
  requestDefaults,
  type Sampling,
  type TemplateArguments,
  type Usage,
} from "../../engines/generation.ts";
import { type ErrorRecord, ServerError } from "../../runtime/errors.ts";
import type { Config } from "../config/config.ts";

/** What the chat API samples with when a request says nothing. */
const defaultSampling: Omit<Sampling, "seed"> = {
  temperature: 1,
  topK: 0,
  topP: 1,
  minP: 0,
  presencePenalty: 0,
  frequencyPenalty: 0,
  repetitionPenalty: 1,
  dry: null,
  logitBias: [],
  topLogprobs: null,
};

/** What is the same for every answer of one run. */
export interface AnswerSettings {
  readonly seed: number | null;
  readonly templateArguments: TemplateArguments;
}

/** Throws config_invalid where the two reasoning controls contradict each other. */
export function answerSettings(config: Pick<Config, "seed" | "thinking" | "reasoningEffort">): AnswerSettings {
  const { seed, thinking, reasoningEffort } = config;
  if (reasoningEffort === null) return { seed, templateArguments: { enableThinking: thinking ?? true } };
  const enableThinking = reasoningEffort !== "off";
  if (thinking !== null && thinking !== enableThinking) {
    const problem = `--thinking ${thinking} contradicts --reasoning-effort ${reasoningEffort}; give one of them`;
    throw new ServerError("config_invalid", problem, { param: "thinking" });
  }
  return { seed, templateArguments: { enableThinking, reasoningEffort } };
}

/** `adapter` is an alias; null for the base model. */
export function chatRequest(
  model: string,
  messages: readonly ChatMessage[],
  settings: AnswerSettings,
  adapter: string | null = null,
): GenerateRequest {
  const { seed, templateArguments } = settings;
  return {
    ...requestDefaults,
    model,
    adapter: adapter === null ? null : { alias: adapter },
    client: "run",
    prompt: { kind: "chat", messages, templateArguments },
    sampling: { ...defaultSampling, seed },
  };
}

/** How an answer ended. All are null, but for the text, where it was interrupted. */
export interface AnswerEnd {
  /** What was said. */
  readonly text: string;
  readonly reason: FinishReason | null;
  readonly usage: Usage | null;
  readonly error: ErrorRecord | null;
}

/** Where an answer is written while it comes. Each waits where its reader is behind. */
export interface AnswerWriters {
  readonly answer: (text: string) => Promise<void>;
  /** What the model thinks before it answers. */
  readonly thinking: (text: string) => Promise<void>;
}

/** Generates an answer and writes its text as it comes. */
export async function streamAnswer(
  inference: Inference,
  request: GenerateRequest,
  signal: AbortSignal,
  write: AnswerWriters,
): Promise<AnswerEnd> {
  let said = "";
  let reason: FinishReason | null = null;
  for await (const events of inference.generate(request, signal)) {
    let text = "";
    let thought = "";
    for (const event of events) {
      if (event.type === "text") text += event.text;
      else if (event.type === "reasoning") thought += event.text;
      else if (event.type === "finish") reason = event.reason;
    }
    // What came with an interrupt is neither shown nor kept.
    if (signal.aborted) break;
    said += text;
    if (thought !== "") await write.thinking(thought);
    if (text !== "") await write.answer(text);
    const last = events.at(-1);
    if (last?.type === "done") return { text: said, reason, usage: last.usage, error: null };
    if (last?.type === "error") return { text: said, reason: null, usage: null, error: last.error };
  }
  return { text: said, reason: null, usage: null, error: null };
}

/** One line about the cost of an answer. */
export function usageLine(usage: Usage): string {
  const { completionTokens: tokens, completionSeconds, promptSeconds, promptTokens } = usage;
  // One token takes no time after itself.
  const rate = completionSeconds > 0 ? [`${(tokens / completionSeconds).toFixed(1)} tok/s`] : [];
  const firstMs = Math.round(promptSeconds * 1000);
  return [counted(tokens, "token"), ...rate, `first token ${firstMs} ms`, counted(promptTokens, "prompt token")].join(
    ", ",
  );
}

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}
