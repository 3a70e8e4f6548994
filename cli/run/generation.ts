// Generation of one answer in `troupe run`: builds the request from settings and conversation, and writes the answer as it
// arrives. Used by the one-shot mode and the REPL.
import type { Inference } from "../../actors/api/inference.ts";
import {
  type ChatMessage,
  type FinishReason,
  type GenerateRequest,
  requestDefaults,
  type TemplateArguments,
  type Usage,
} from "../../engines/generation.ts";
import { samplingOf } from "../../http/shared/fields/fields.ts";
import { type ErrorRecord, ServerError } from "../../runtime/errors.ts";
import type { Config } from "../config/config.ts";
import type { AnswerFields } from "./answer-fields.ts";

/** Settings that all answers of one run share. */
export interface AnswerSettings {
  readonly seed: number | null;
  readonly templateArguments: TemplateArguments;
}

/** Returns the settings. Throws config_invalid if the two reasoning settings contradict each other. */
export function answerSettings(config: Pick<Config, "seed" | "thinking" | "reasoningEffort">): AnswerSettings {
  const { seed, thinking, reasoningEffort } = config;
  if (reasoningEffort === null) return { seed, templateArguments: { enableThinking: thinking ?? true } };
  const enableThinking = reasoningEffort !== "off";
  if (thinking !== null && thinking !== enableThinking) {
    const problem = `--thinking ${thinking} contradicts --reasoning-effort ${reasoningEffort}; remove one of them`;
    throw new ServerError("config_invalid", problem, { param: "thinking" });
  }
  return { seed, templateArguments: { enableThinking, reasoningEffort } };
}

/** Builds the request. `adapter` is the alias of an adapter; null for the base model. `fields` override the settings. */
export function chatRequest(
  model: string,
  messages: readonly ChatMessage[],
  settings: AnswerSettings,
  adapter: string | null = null,
  fields: AnswerFields = {},
): GenerateRequest {
  const { seed, templateArguments } = settings;
  return {
    ...requestDefaults,
    model,
    adapter: adapter === null ? null : { alias: adapter },
    client: "run",
    prompt: { kind: "chat", messages, templateArguments },
    sampling: samplingOf({ ...fields, seed: fields.seed ?? seed }, null),
    maxTokens: fields.max_tokens ?? null,
  };
}

/** Result of an answer. If it was interrupted, all fields except `text` are null. */
export interface AnswerEnd {
  readonly text: string;
  readonly reason: FinishReason | null;
  readonly usage: Usage | null;
  readonly error: ErrorRecord | null;
}

/** Functions that write an answer's text. Each resolves when the output is ready for more text. */
export interface AnswerWriters {
  readonly answer: (text: string) => Promise<void>;
  /** Writes reasoning text. */
  readonly thinking: (text: string) => Promise<void>;
}

/** Generates an answer and writes its text as it arrives. */
export async function streamAnswer(
  inference: Pick<Inference, "generate">,
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
    // Text that arrives after an interrupt is neither shown nor added to the conversation.
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

/** Formats the usage as one line: tokens, tokens per second, time to first token. */
export function usageLine(usage: Usage): string {
  const { completionTokens: tokens, completionSeconds, promptSeconds, promptTokens } = usage;
  // A single token has no rate, because completionSeconds starts at the first token.
  const rate = completionSeconds > 0 ? [`${(tokens / completionSeconds).toFixed(1)} tok/s`] : [];
  const firstMs = Math.round(promptSeconds * 1000);
  return [counted(tokens, "token"), ...rate, `first token ${firstMs} ms`, counted(promptTokens, "prompt token")].join(
    ", ",
  );
}

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}
