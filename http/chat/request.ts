// Owns the request of POST /v1/chat/completions: its schema, and what it means as a GenerateRequest. Fields that are known
// and change nothing, and fields that are not built yet, are here by name.
import { z } from "zod";
import type { GenerateRequest, TemplateArguments } from "../../engines/chat.ts";
import {
  commonFields,
  fieldIssue,
  ignored,
  isEmptyArray,
  notBuiltYet,
  refused,
  samplingOf,
  stopStrings,
} from "../fields.ts";
import { grammarConflicts, outputGrammar, responseFormat } from "../grammar-fields.ts";
import type { Origin } from "../origin.ts";
import { requestedTools, toolFieldIssues, toolFields } from "../tool-fields.ts";
import { contradiction, conversation } from "./conversation.ts";
import { messagesSchema } from "./messages.ts";

const efforts = ["off", "none", "minimal", "low", "medium", "high", "xhigh"] as const;

const reasoningFields = {
  enable_thinking: z.boolean().nullish().meta({ description: "Think before the answer; left out, as the model does" }),
  reasoning_effort: z.enum(efforts).nullish().meta({ description: "How long to think, where the model can tell" }),
};

const permission = z.enum(["auto", "ask", "deny"]);

const ASK_NEEDS_STREAM =
  'agent_permission "ask" needs stream=true: approvals are asked for in the stream and answered at POST /v1/agent/approvals/{approval_id}';
const CACHED_ANYWAY = "the start of a prompt is cached wherever it is used again";
const TOOLS_INSTEAD = "functions are an older way; send tools and tool_choice";

const isTextOnly = (modalities: unknown): boolean =>
  Array.isArray(modalities) && modalities.every((modality) => modality === "text");

/** What a text model of this server has no use for, and takes all the same. */
const ignoredFields = {
  metadata: ignored(z.record(z.string(), z.unknown()), "nothing is kept of a request"),
  service_tier: ignored(z.string(), "there is one tier; a request is put before others by priority"),
  store: ignored(z.boolean(), "chat completions are not kept; POST /v1/responses keeps its answers"),
  safety_identifier: ignored(z.string(), "clients take turns by their API key or address"),
  verbosity: ignored(z.enum(["low", "medium", "high"]), "no model here has such a setting; say it in a message"),
  prediction: ignored(z.looseObject({ type: z.literal("content") }), "drafts are made from the conversation itself"),
  prompt_cache_key: ignored(z.string(), CACHED_ANYWAY),
  prompt_cache_retention: ignored(z.string(), CACHED_ANYWAY),
  prompt_cache_options: ignored(z.record(z.string(), z.unknown()), CACHED_ANYWAY),
} as const;

export const chatRequestSchema = z
  .strictObject({
    messages: messagesSchema,
    ...commonFields,
    stream: z.boolean().nullish().meta({ description: "Answer piece by piece, as server-sent events; false" }),
    stream_options: z
      .strictObject({
        include_usage: z
          .boolean()
          .nullish()
          .meta({ description: "The usage comes in a chunk of its own, without choices; false: on the last chunk" }),
        include_obfuscation: ignored(z.boolean(), "chunks are not padded; lengths are hidden by TLS, if at all"),
      })
      .nullish(),
    max_completion_tokens: z.int().min(1).nullish().meta({ description: "Another name of max_tokens" }),
    logprobs: z.boolean().nullish().meta({ description: "Report how likely each token of the content was; false" }),
    top_logprobs: z.int().min(0).max(20).nullish().meta({ description: "Likeliest tokens to report beside each; 0" }),
    ...reasoningFields,
    reasoning_budget: z
      .int()
      .min(0)
      .nullish()
      .meta({ description: "Most tokens of thinking; what follows is the answer. Not of the contract" }),
    chat_template_kwargs: z
      .strictObject(reasoningFields)
      .nullish()
      .meta({ description: "Another place for the fields of the same names" }),
    response_format: responseFormat,
    ...toolFields,
    functions: refused(TOOLS_INSTEAD, isEmptyArray),
    function_call: refused(TOOLS_INSTEAD, (value) => value === "none" || value === "auto"),
    web_search_options: notBuiltYet("web search"),
    enable_shell: notBuiltYet("the shell tool", (value) => value === false),
    max_tool_rounds: notBuiltYet("a limit of tool rounds"),
    session_id: notBuiltYet("keeping a session"),
    files: notBuiltYet("asking for files", isEmptyArray),
    audio: notBuiltYet("an answer in audio"),
    modalities: notBuiltYet("an answer in another form than text", isTextOnly),
    moderation: notBuiltYet("moderation"),
    agent_permission: permission.nullish().meta({
      description: "Whether tools that the server runs may be; there are none yet, so auto and deny come to the same",
    }),
    code_execution_permission: permission.nullish().meta({ description: "Another name of agent_permission" }),
    ...ignoredFields,
  })
  .superRefine((body, context) => {
    const wrong = contradiction(body.messages);
    if (wrong !== null) {
      context.addIssue({ code: "custom", path: ["messages", ...wrong.path], message: wrong.message });
    }
    for (const issue of conflicts(body)) context.addIssue(issue);
  });

export type ChatRequestBody = z.output<typeof chatRequestSchema>;

/** The neutral request a body asks for. */
export function toGenerateRequest(body: ChatRequestBody, origin: Origin): GenerateRequest {
  return {
    ...origin,
    prompt: { kind: "chat", messages: conversation(body.messages), templateArguments: templateArguments(body) },
    sampling: samplingOf(body, body.logprobs ? (body.top_logprobs ?? 0) : null),
    choices: body.n ?? 1,
    candidates: body.n ?? 1,
    priority: body.priority ?? 0,
    grammar: outputGrammar(body),
    tools: requestedTools(body),
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
  yield* toolFieldIssues(body);
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
