// Request of POST /v1/chat/completions: its schema and its translation to a GenerateRequest. The schema also lists ignored
// fields and fields that are not implemented yet.
import { z } from "zod";
import type { AgentOptions, InputFile } from "../../actors/api/agent/agents.ts";
import type { ToolSpec } from "../../engines/generation.ts";
import {
  type AgentFields,
  agentFields,
  agentOptions,
  digestsOf,
  type NamedGroups,
  namedGroups,
  namedSpecs,
  runRequest,
} from "../shared/agent/request-fields.ts";
import { type OfferedTools, runTools, type ToolNeeds } from "../shared/agent/run-tools.ts";
import { addConflicts, type Conflict, differing } from "../shared/fields/conflicts.ts";
import {
  commonFields,
  ignored,
  isEmptyArray,
  notBuiltYet,
  refused,
  samplingConflicts,
  samplingOf,
  stopStrings,
  streamField,
} from "../shared/fields/fields.ts";
import { grammarConflicts, outputGrammar, responseFormat, sentGrammar } from "../shared/fields/grammar-fields.ts";
import { MediaCollector } from "../shared/fields/media-part.ts";
import { openAiFields, verbosityField } from "../shared/fields/openai-fields.ts";
import { limitConflicts, outputLimit } from "../shared/fields/output-limit.ts";
import {
  otherVariables,
  templateVariablesField,
  thinkingAmong,
  variableConflicts,
} from "../shared/fields/template-variables.ts";
import {
  type AskedThinking,
  effortField,
  isContradictory,
  templateArguments,
  thinkConflicts,
  thinkingSwitches,
  withThink,
} from "../shared/fields/thinking.ts";
import { approvalConflicts, asksForApproval, namedServer } from "../shared/fields/tools/mcp-tool.ts";
import { permissionConflicts, permissionField } from "../shared/fields/tools/permission.ts";
import { filesOfTool, serverToolGroups, sessionOfContainer, skillsOfTool } from "../shared/fields/tools/tool-fields.ts";
import { callConflicts } from "../shared/fields/tools/tool-use.ts";
import { webSearchOptionsField, webUseOf } from "../shared/fields/tools/web-search.ts";
import type { AskedRequest } from "../shared/translation.ts";
import { addMessageIssues, inputFiles, openConversation } from "./conversation.ts";
import { messagesSchema } from "./messages.ts";
import {
  choiceOf,
  functionNames,
  mcpToolsOf,
  namedTools,
  requestedToolConflicts,
  requestedTools,
  serverToolsOf,
  toolFields,
} from "./tools.ts";

const limitNames = ["max_tokens", "max_completion_tokens", "n_predict"] as const;

const TOOLS_INSTEAD = "functions are deprecated; send tools and tool_choice";

const isTextOnly = (modalities: unknown): boolean =>
  Array.isArray(modalities) && modalities.every((modality) => modality === "text");

const ignoredFields = {
  metadata: ignored(z.record(z.string(), z.unknown()), "requests are not stored"),
  store: ignored(z.boolean(), "chat completions are not stored; POST /v1/responses stores responses"),
  verbosity: verbosityField,
  prediction: ignored(
    z.looseObject({ type: z.literal("content") }),
    "speculative decoding drafts from the conversation",
  ),
} as const;

export const chatRequestSchema = z
  .strictObject({
    messages: messagesSchema,
    ...commonFields,
    ...openAiFields,
    stream: streamField,
    stream_options: z
      .strictObject({
        include_usage: z.boolean().nullish().meta({
          description: "Send the usage in a separate last chunk without choices, instead of on the last chunk.",
          default: false,
        }),
        include_obfuscation: ignored(z.boolean(), "chunks are not padded"),
      })
      .nullish(),
    logprobs: z
      .boolean()
      .nullish()
      .meta({ description: "Return the log probabilities of the output tokens.", default: false }),
    ...thinkingSwitches,
    reasoning_effort: effortField,
    chat_template_kwargs: templateVariablesField,
    continue_final_message: z.boolean().nullish().meta({
      description:
        "Continue an assistant message at the end; the output is only the continuation. By default true if that message has text and no tool calls; false begins a new message.",
    }),
    add_generation_prompt: z
      .boolean()
      .nullish()
      .meta({ description: "The opposite of continue_final_message, for clients that send it." }),
    response_format: responseFormat,
    ...toolFields,
    functions: refused(TOOLS_INSTEAD, isEmptyArray),
    function_call: refused(TOOLS_INSTEAD, (value) => value === "none" || value === "auto"),
    web_search_options: webSearchOptionsField,
    ...agentFields,
    audio: notBuiltYet("an answer in audio"),
    modalities: notBuiltYet("an answer in another form than text", isTextOnly),
    code_execution_permission: permissionField.meta({ description: "Alias of agent_permission." }),
    ...ignoredFields,
  })
  .superRefine((body, context) => {
    addMessageIssues(context, body);
    addConflicts(context, conflicts(body));
  });

export type ChatRequestBody = z.output<typeof chatRequestSchema>;

/**
 * Converts a request body to the request format that all protocols share and to the options of the agent loop. `offered`: tools
 * of the server; null: no agent loop. Throws `unsupported` if the body needs a feature that the server does not offer.
 */
export function askedRun(
  body: ChatRequestBody,
  offered: OfferedTools | null,
): { readonly asked: AskedRequest; readonly agent: AgentOptions | null } {
  const { messages, continuesLast } = openConversation(body);
  const inputs = [...inputFiles(body.messages), ...toolFiles(body, messages.length - 1)];
  const needs = toolNeeds(body, inputs.length > 0, continuesLast ?? false);
  const tools = runTools(needs, offered);
  const asked = askedRequest(body, tools?.specs);
  if (tools === null) return { asked, agent: null };
  const { fields, web, skills } = needs;
  const isStreamed = body.stream ?? false;
  const options = { ...tools, web, skills, inputFiles: inputs, digests: digestsOf(messages), isStreamed };
  return runRequest(asked, agentOptions(fields, options));
}

function toolNeeds(body: ChatRequestBody, hasFiles: boolean, continuesLast: boolean): ToolNeeds {
  return {
    named: featuresOf(body),
    fields: sentAgentFields(body),
    hasFiles,
    functions: functionNames(body),
    servers: mcpToolsOf(body).map(namedServer),
    skills: serverToolsOf(body).flatMap(skillsOfTool),
    web: webUseOf(body.web_search_options),
    choice: choiceOf(body),
    hasRoom: (body.n ?? 1) === 1 && sentGrammar(body) === null && !continuesLast,
  };
}

/**
 * Converts a request body to the request format that all protocols share. `serverTools`: tools of the server to offer to the
 * model.
 */
export function askedRequest(body: ChatRequestBody, serverTools: readonly ToolSpec[] = []): AskedRequest {
  const media = new MediaCollector();
  const opened = openConversation(body, media);
  const { all } = media;
  return {
    ...(all && { media: all }),
    prompt: {
      kind: "chat",
      ...opened,
      templateArguments: {
        ...templateArguments(askedThinking(body)),
        ...otherVariables(body.chat_template_kwargs),
      },
    },
    sampling: samplingOf(body, body.logprobs ? (body.top_logprobs ?? 0) : null),
    choices: body.n ?? 1,
    candidates: body.n ?? 1,
    priority: body.priority ?? 0,
    grammar: outputGrammar(body),
    tools: requestedTools(body, serverTools),
    promptLogprobs: null,
    reasoningBudget: body.reasoning_budget ?? null,
    stop: stopStrings(body.stop),
    ignoreEos: body.ignore_eos ?? false,
    stopTokens: body.stop_token_ids ?? [],
    truncatePrompt: body.truncate_sequence ?? false,
    ...outputLimit(body, "messages", limitNames),
  };
}

type Conflicting = Omit<ChatRequestBody, "messages">;

function* conflicts(body: Conflicting): Iterable<Conflict> {
  yield* grammarConflicts(body);
  const added = namedSpecs(featuresOf(body));
  yield* requestedToolConflicts(body, added);
  yield* callConflicts(namedTools(body, added), { ...body, grammar: sentGrammar(body) });
  yield* samplingConflicts(body);
  yield* contradictedNames(body);
  if (typeof body.top_logprobs === "number" && body.logprobs !== true) yield ["top_logprobs", "needs logprobs: true"];
  const thinking = askedThinking(body);
  if (isContradictory(thinking)) {
    yield ["reasoning_effort", `"${thinking.effort}" contradicts enable_thinking: ${thinking.isOn}`];
  }
  yield* permissionConflicts(body.agent_permission ?? body.code_execution_permission, body.stream);
  yield* approvalConflicts(mcpToolsOf(body), body.stream);
}

/** Returns the features (tool groups) that the request switches on or off. */
function featuresOf(body: Conflicting): NamedGroups {
  const hosted = serverToolsOf(body).map(({ type }) => serverToolGroups[type]);
  return namedGroups(body, body.web_search_options ? [...hosted, "web_search"] : hosted);
}

/** Returns the request's fields for the agent loop. Aliases are resolved, and a named container supplies the session. */
function sentAgentFields(body: Conflicting): AgentFields {
  const containers = serverToolsOf(body).flatMap((tool) =>
    tool.type === "code_interpreter" && typeof tool.container === "string" ? [sessionOfContainer(tool.container)] : [],
  );
  return {
    ...body,
    agent_permission: permissionOf(body),
    session_id: body.session_id ?? containers[0],
  };
}

function permissionOf(body: Conflicting): AgentFields["agent_permission"] {
  const sent = body.agent_permission ?? body.code_execution_permission;
  return sent !== "deny" && mcpToolsOf(body).some(asksForApproval) ? "ask" : sent;
}

/** Returns the files that the tool definitions list by id, as files of the last message. `message`: index of that message. */
function toolFiles(body: Conflicting, message: number): readonly InputFile[] {
  return serverToolsOf(body).flatMap((tool) => filesOfTool(tool).map((id) => ({ message, id })));
}

/** Yields the conflicts between fields and their aliases. */
function* contradictedNames(body: Conflicting): Iterable<Conflict> {
  const { agent_permission, code_execution_permission, chat_template_kwargs } = body;
  yield* limitConflicts(body, limitNames);
  yield* differing("code_execution_permission", code_execution_permission, "agent_permission", agent_permission);
  yield* thinkConflicts(sentThinking(body), body.think);
  yield* variableConflicts(chat_template_kwargs, { effort: body.reasoning_effort, isOn: body.enable_thinking });
}

function askedThinking(body: Conflicting): AskedThinking {
  return withThink(sentThinking(body), body.think);
}

/** Returns the thinking settings in all fields of a request except the alias `think`. */
function sentThinking({
  enable_thinking,
  reasoning_effort,
  chat_template_kwargs: template,
}: Conflicting): AskedThinking {
  const { effort, isOn } = thinkingAmong(template);
  return { effort: reasoning_effort ?? effort, isOn: enable_thinking ?? isOn };
}
