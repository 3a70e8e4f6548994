// Owns the request of POST /v1/chat/completions: its schema, and what it means as a GenerateRequest. Fields of the
// contract that are not built yet are known here by name, and refused.
import { z } from "zod";
import type { ChatMessage, GenerateRequest, TemplateArguments } from "../../engines/chat.ts";
import { commonFields, fieldIssue, isEmptyArray, notBuiltYet, samplingOf, stopStrings } from "../fields.ts";
import { grammarConflicts, outputGrammar, responseFormat } from "../grammar-fields.ts";
import { messagesSchema, type WireMessage } from "./messages.ts";

const reasoningFields = {
  enable_thinking: z.boolean().nullish(),
  reasoning_effort: z.enum(["off", "none", "low", "medium", "high", "xhigh"]).nullish(),
};

const permission = z.enum(["auto", "ask", "deny"]);

const ASK_NEEDS_STREAM =
  'agent_permission "ask" needs stream=true: approvals are asked for in the stream and answered at POST /v1/agent/approvals/{approval_id}';

export const chatRequestSchema = z
  .strictObject({
    ...commonFields,
    messages: messagesSchema,
    stream: z.boolean().nullish(),
    stream_options: z.strictObject({ include_usage: z.boolean().nullish() }).nullish(),
    max_completion_tokens: z.int().min(1).nullish(),
    logprobs: z.boolean().nullish(),
    top_logprobs: z.int().min(0).max(20).nullish(),
    ...reasoningFields,
    // Ours: most tokens of thinking. What follows them is the answer.
    reasoning_budget: z.int().min(0).nullish(),
    chat_template_kwargs: z.strictObject(reasoningFields).nullish(),
    response_format: responseFormat,
    web_search_options: notBuiltYet("web search"),
    enable_shell: notBuiltYet("the shell tool", (value) => value === false),
    max_tool_rounds: notBuiltYet("a limit of tool rounds"),
    session_id: notBuiltYet("keeping a session"),
    files: notBuiltYet("asking for files", isEmptyArray),
    // Without tools there is nothing to permit, so auto and deny come to the same.
    agent_permission: permission.nullish(),
    code_execution_permission: permission.nullish(),
    // Accepted for the sake of clients that send them; they change nothing.
    metadata: z.record(z.string(), z.unknown()).nullish(),
    service_tier: z.string().nullish(),
    parallel_tool_calls: z.boolean().nullish(),
    store: z.boolean().nullish(),
  })
  .superRefine((body, context) => {
    for (const issue of conflicts(body)) context.addIssue(issue);
  });

export type ChatRequestBody = z.output<typeof chatRequestSchema>;

/** The neutral request a body asks for, of the model it resolved to, for a client. */
export function toGenerateRequest(body: ChatRequestBody, model: string, client: string): GenerateRequest {
  return {
    model,
    client,
    prompt: { kind: "chat", messages: chatMessages(body.messages), templateArguments: templateArguments(body) },
    sampling: samplingOf(body, body.logprobs ? (body.top_logprobs ?? 0) : null),
    choices: body.n ?? 1,
    candidates: body.n ?? 1,
    priority: body.priority ?? 0,
    grammar: outputGrammar(body),
    promptLogprobs: null,
    reasoningBudget: body.reasoning_budget ?? null,
    stop: stopStrings(body.stop),
    maxTokens: body.max_tokens ?? body.max_completion_tokens ?? null,
    ignoreEos: body.ignore_eos ?? false,
    truncatePrompt: body.truncate_sequence ?? false,
  };
}

type Conflicting = Omit<ChatRequestBody, "messages">;

/** Fields that are right alone and wrong together. */
function* conflicts(body: Conflicting): Iterable<ReturnType<typeof fieldIssue>> {
  for (const [field, message] of grammarConflicts(body)) yield fieldIssue(field, message);
  const template = body.chat_template_kwargs;
  yield* differing("max_completion_tokens", body.max_completion_tokens, "max_tokens", body.max_tokens);
  yield* differing(
    "code_execution_permission",
    body.code_execution_permission,
    "agent_permission",
    body.agent_permission,
  );
  yield* differing(
    "chat_template_kwargs.enable_thinking",
    template?.enable_thinking,
    "enable_thinking",
    body.enable_thinking,
  );
  yield* differing(
    "chat_template_kwargs.reasoning_effort",
    template?.reasoning_effort,
    "reasoning_effort",
    body.reasoning_effort,
  );
  if (typeof body.top_logprobs === "number" && body.logprobs !== true) {
    yield fieldIssue("top_logprobs", "needs logprobs: true");
  }
  const { enableThinking, reasoningEffort } = templateArguments(body);
  if (reasoningEffort !== undefined && enableThinking !== (reasoningEffort !== "off")) {
    yield fieldIssue("reasoning_effort", `"${reasoningEffort}" contradicts enable_thinking: ${enableThinking}`);
  }
  const asks = body.agent_permission ?? body.code_execution_permission;
  if (asks === "ask" && body.stream !== true) yield fieldIssue("agent_permission", ASK_NEEDS_STREAM);
}

function* differing<Value>(field: string, value: Value, other: string, otherValue: Value) {
  const isGiven = (some: Value): boolean => some !== undefined && some !== null;
  if (!isGiven(value) || !isGiven(otherValue) || value === otherValue) return;
  yield fieldIssue(
    field,
    `${JSON.stringify(value)} contradicts ${other}: ${JSON.stringify(otherValue)}; send one of them`,
  );
}

/** An effort implies thinking, and "off" its absence, unless the request says so itself. */
function templateArguments(body: Conflicting): TemplateArguments {
  const template = body.chat_template_kwargs;
  const effort = body.reasoning_effort ?? template?.reasoning_effort ?? undefined;
  const reasoningEffort = effort === "none" ? "off" : effort;
  const explicit = body.enable_thinking ?? template?.enable_thinking ?? undefined;
  const enableThinking = explicit ?? (reasoningEffort === undefined ? undefined : reasoningEffort !== "off");
  return {
    ...(enableThinking === undefined ? {} : { enableThinking }),
    ...(reasoningEffort === undefined ? {} : { reasoningEffort }),
  };
}

function chatMessages(messages: string | readonly WireMessage[]): readonly ChatMessage[] {
  return typeof messages === "string" ? [{ role: "user", content: messages }] : messages.map(chatMessage);
}

function chatMessage(message: WireMessage): ChatMessage {
  // `developer` is this protocol's newer word for `system`; few templates know it.
  const role = message.role === "developer" ? "system" : message.role;
  const { name } = message;
  return { role, content: text(message.content), ...(typeof name === "string" ? { name } : {}) };
}

function text(content: WireMessage["content"]): string {
  if (typeof content === "string") return content;
  return (content ?? []).map((part) => part.text).join("\n");
}
