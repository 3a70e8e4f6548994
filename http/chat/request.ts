// Owns the request of POST /v1/chat/completions: its schema, and what it means as a GenerateRequest. Fields that are known
// and change nothing, and fields that are not built yet, are here by name.
import { z } from "zod";
import { addConflicts, type Conflict, differing } from "../shared/fields/conflicts.ts";
import {
  commonFields,
  ignored,
  isEmptyArray,
  notBuiltYet,
  refused,
  samplingOf,
  stopStrings,
  streamField,
} from "../shared/fields/fields.ts";
import { grammarConflicts, outputGrammar, responseFormat } from "../shared/fields/grammar-fields.ts";
import { openAiFields, verbosityField } from "../shared/fields/openai-fields.ts";
import { permissionConflicts, permissionField } from "../shared/fields/permission.ts";
import { type AskedThinking, effortField, isContradictory, templateArguments } from "../shared/fields/thinking.ts";
import { callConflicts } from "../shared/fields/tool-use.ts";
import type { AskedRequest } from "../shared/translation.ts";
import { contradiction, conversation } from "./conversation.ts";
import { messagesSchema } from "./messages.ts";
import { requestedToolConflicts, requestedTools, toolFields } from "./tools.ts";

const thinkingFields = {
  enable_thinking: z.boolean().nullish().meta({ description: "Think before the answer; left out, as the model does" }),
  reasoning_effort: effortField,
};

const TOOLS_INSTEAD = "functions are an older way; send tools and tool_choice";

const isTextOnly = (modalities: unknown): boolean =>
  Array.isArray(modalities) && modalities.every((modality) => modality === "text");

/** What a text model of this server has no use for, and takes all the same. */
const ignoredFields = {
  metadata: ignored(z.record(z.string(), z.unknown()), "nothing is kept of a request"),
  store: ignored(z.boolean(), "chat completions are not kept; POST /v1/responses keeps its answers"),
  verbosity: verbosityField,
  prediction: ignored(z.looseObject({ type: z.literal("content") }), "drafts are made from the conversation itself"),
} as const;

export const chatRequestSchema = z
  .strictObject({
    messages: messagesSchema,
    ...commonFields,
    ...openAiFields,
    stream: streamField,
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
    ...thinkingFields,
    chat_template_kwargs: z
      .strictObject(thinkingFields)
      .nullish()
      .meta({ description: "Another place for the fields of the same names" }),
    response_format: responseFormat,
    ...toolFields,
    functions: refused(TOOLS_INSTEAD, isEmptyArray),
    function_call: refused(TOOLS_INSTEAD, (value) => value === "none" || value === "auto"),
    web_search_options: notBuiltYet("web search"),
    enable_shell: notBuiltYet("the shell tool", (value) => value === false),
    session_id: notBuiltYet("keeping a session"),
    audio: notBuiltYet("an answer in audio"),
    modalities: notBuiltYet("an answer in another form than text", isTextOnly),
    agent_permission: permissionField,
    code_execution_permission: permissionField.meta({ description: "Another name of agent_permission" }),
    ...ignoredFields,
  })
  .superRefine((body, context) => {
    const wrong = contradiction(body.messages);
    if (wrong !== null) {
      context.addIssue({ code: "custom", path: ["messages", ...wrong.path], message: wrong.message });
    }
    addConflicts(context, conflicts(body));
  });

export type ChatRequestBody = z.output<typeof chatRequestSchema>;

/** The neutral request a body asks for. */
export function askedRequest(body: ChatRequestBody): AskedRequest {
  return {
    prompt: {
      kind: "chat",
      messages: conversation(body.messages),
      templateArguments: templateArguments(askedThinking(body)),
    },
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
function* conflicts(body: Conflicting): Iterable<Conflict> {
  yield* grammarConflicts(body);
  yield* requestedToolConflicts(body);
  yield* callConflicts(requestedTools(body), body);
  yield* contradictedNames(body);
  if (typeof body.top_logprobs === "number" && body.logprobs !== true) yield ["top_logprobs", "needs logprobs: true"];
  const thinking = askedThinking(body);
  if (isContradictory(thinking)) {
    yield ["reasoning_effort", `"${thinking.effort}" contradicts enable_thinking: ${thinking.isOn}`];
  }
  yield* permissionConflicts(body.agent_permission ?? body.code_execution_permission, body.stream);
}

/** Of fields with two names. */
function* contradictedNames(body: Conflicting): Iterable<Conflict> {
  const { agent_permission, code_execution_permission, chat_template_kwargs: template } = body;
  yield* differing("max_completion_tokens", body.max_completion_tokens, "max_tokens", body.max_tokens);
  yield* differing("code_execution_permission", code_execution_permission, "agent_permission", agent_permission);
  for (const field of ["enable_thinking", "reasoning_effort"] as const) {
    yield* differing(`chat_template_kwargs.${field}`, template?.[field], field, body[field]);
  }
}

function askedThinking({
  enable_thinking,
  reasoning_effort,
  chat_template_kwargs: template,
}: Conflicting): AskedThinking {
  return {
    effort: reasoning_effort ?? template?.reasoning_effort,
    isOn: enable_thinking ?? template?.enable_thinking,
  };
}
