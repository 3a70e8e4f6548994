// Chat request: converts a request to web-llm's format. Features that web-llm lacks are rejected with an error that names the
// field.
import type {
  ChatCompletionMessageParam,
  ChatCompletionRequestStreaming,
  ResponseFormat,
} from "@mlc-ai/web-llm/lib/openai_api_protocols/chat_completion.js";
import type { ChatMessage, OutputGrammar } from "../../engines/generation.ts";
import type { AskedRequest } from "../../http/shared/translation.ts";
import { ServerError } from "../../runtime/errors.ts";

const efforts = ["off", undefined];

/** Converts a request. Throws `unsupported` for a setting that web-llm does not have. */
export function chatRequest(asked: AskedRequest): ChatCompletionRequestStreaming {
  const { prompt, sampling, grammar } = asked;
  if (prompt.kind !== "chat") throw new Error(`expected a chat, got a prompt of kind ${prompt.kind}`);
  const { enableThinking, reasoningEffort } = prompt.templateArguments;
  if (prompt.continuesLast) refuse("input", "cannot continue an answer", "regenerate it");
  if (sampling.topK !== null) refuse("top_k", "has no top_k", "leave it out");
  if (sampling.minP !== null) refuse("min_p", "has no min_p", "leave it out");
  if (sampling.repetitionPenalty !== null) refuse("repetition_penalty", "takes no repetition penalty", "leave it out");
  if (sampling.logitBias.length > 0) refuse("logit_bias", "takes no logit bias", "leave it out");
  if (sampling.dry !== null) refuse("dry_multiplier", "has no DRY sampling", "leave it out");
  if (asked.minTokens > 0) refuse("min_tokens", "has no least length of answers", "leave it out");
  if (asked.ignoreEos) refuse("ignore_eos", "ends where the model ends", "leave it out");
  if (asked.stopTokens.length > 0) refuse("stop_token_ids", "takes no stop tokens", "give stop strings");
  if (asked.truncatePrompt) refuse("truncation", "shortens no prompts", "leave it out");
  if (asked.reasoningBudget !== null) refuse("reasoning_budget", "has no limit of its thinking", "leave it out");
  if (!efforts.includes(reasoningEffort)) {
    refuse("reasoning", "can think or not, and has no other effort", "choose off, or the default");
  }
  const { temperature, topP, presencePenalty, frequencyPenalty, seed, topLogprobs } = sampling;
  return {
    messages: prompt.messages.map(message),
    stream: true,
    stream_options: { include_usage: true },
    temperature,
    top_p: topP,
    presence_penalty: presencePenalty,
    frequency_penalty: frequencyPenalty,
    max_tokens: asked.maxTokens,
    stop: [...asked.stop],
    ...(seed !== null && { seed }),
    ...(topLogprobs !== null && { logprobs: true, top_logprobs: topLogprobs }),
    ...(grammar !== null && { response_format: format(grammar) }),
    ...(enableThinking !== undefined && { extra_body: { enable_thinking: enableThinking } }),
  };
}

/** Converts a message. Earlier thinking is omitted, as in chat templates. */
function message({ role, content, toolCalls = [], media = [] }: ChatMessage): ChatCompletionMessageParam {
  if (media.length > 0) refuse("input", "takes no images, videos or audio", "choose a model of the server");
  if (role === "tool" || toolCalls.length > 0) {
    refuse("input", "cannot read the tool calls of this conversation", "choose a model of the server");
  }
  if (role === "assistant") return { role, content };
  return role === "user" ? { role, content } : { role: "system", content };
}

function format(grammar: OutputGrammar): ResponseFormat {
  if (grammar.kind === "json") return { type: "json_object" };
  if (grammar.kind === "json_schema") return { type: "json_object", schema: JSON.stringify(grammar.schema) };
  return refuse(
    "text",
    `has no grammars of kind ${grammar.kind}`,
    "give a JSON schema, or choose a model of the server",
  );
}

function refuse(param: string, problem: string, advice: string): never {
  throw new ServerError("unsupported", `the model on the GPU ${problem}: ${advice}`, { param });
}
