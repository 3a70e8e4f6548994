// Request of POST /v1/responses: its schema, and its translation, together with the conversation, to a GenerateRequest. The
// schema also lists ignored fields and fields that are not implemented yet.
import { z } from "zod";
import type { ChatMessage, OutputGrammar, ToolSpec } from "../../../engines/generation.ts";
import {
  type AgentFields,
  agentFields,
  type NamedGroups,
  namedGroups,
  namedSpecs,
} from "../../shared/agent/request-fields.ts";
import { addConflicts, type Conflict } from "../../shared/fields/conflicts.ts";
import {
  commonFields,
  ignored,
  isEmptyArray,
  MAX_MODEL_LENGTH,
  notBuiltYet,
  refused,
  samplingConflicts,
  samplingOf,
  stopStrings,
  streamField,
} from "../../shared/fields/fields.ts";
import { grammarConflicts, outputGrammar, responseFormat, sentGrammar } from "../../shared/fields/grammar-fields.ts";
import { openAiFields } from "../../shared/fields/openai-fields.ts";
import { limitConflicts, outputLimit } from "../../shared/fields/output-limit.ts";
import {
  otherVariables,
  templateVariablesField,
  thinkingAmong,
  variableConflicts,
} from "../../shared/fields/template-variables.ts";
import {
  type AskedThinking,
  effortField,
  isContradictory,
  templateArguments,
  thinkConflicts,
  thinkingSwitches,
  withThink,
} from "../../shared/fields/thinking.ts";
import { approvalConflicts, asksForApproval } from "../../shared/fields/tools/mcp-tool.ts";
import { permissionConflicts } from "../../shared/fields/tools/permission.ts";
import { serverToolGroups, sessionOfContainer } from "../../shared/fields/tools/tool-fields.ts";
import { callConflicts } from "../../shared/fields/tools/tool-use.ts";
import type { AskedRequest } from "../../shared/translation.ts";
import { inputSchema } from "./input-items.ts";
import { textField, textFormat } from "./text-format.ts";
import {
  mcpToolsOf,
  namedTools,
  requestedToolConflicts,
  requestedTools,
  serverToolsOf,
  toolFields,
  webToolOf,
} from "./tools.ts";

const MAX_INSTRUCTIONS_LENGTH = 16 * 2 ** 20;
const MAX_METADATA_PAIRS = 16;
const MAX_METADATA_KEY = 64;
const MAX_METADATA_VALUE = 512;
const MAX_ID_LENGTH = 256;

const limitNames = ["max_output_tokens", "max_completion_tokens", "max_tokens", "n_predict"] as const;

const summaries = ["auto", "concise", "detailed"] as const;

/** Accepted values of `include`. Only the values for logprobs and sources have an effect. */
const includable = [
  "file_search_call.results",
  "web_search_call.results",
  "web_search_call.action.sources",
  "message.input_image.image_url",
  "computer_call_output.output.image_url",
  "code_interpreter_call.outputs",
  "reasoning.encrypted_content",
  "message.output_text.logprobs",
] as const;

const reasoningField = z
  .strictObject({
    effort: effortField,
    summary: ignored(z.enum(summaries), "the item has the full reasoning as its content"),
    generate_summary: ignored(z.enum(summaries), "the item has the full reasoning as its content"),
    context: ignored(z.string(), "the chat template decides which earlier reasoning the prompt contains"),
    mode: ignored(z.string(), "there is one mode"),
  })
  .nullish();

const metadataField = z
  .record(z.string().max(MAX_METADATA_KEY), z.string().max(MAX_METADATA_VALUE))
  .refine((pairs) => Object.keys(pairs).length <= MAX_METADATA_PAIRS, {
    error: `expected at most ${MAX_METADATA_PAIRS} pairs, got more`,
  })
  .nullish()
  .meta({ description: "Key-value pairs stored with the response and returned with it." });

const lifecycleFields = {
  previous_response_id: z
    .string()
    .max(MAX_ID_LENGTH)
    .nullish()
    .meta({ description: "Id of the response to continue; its instructions are not inherited." }),
  store: z
    .boolean()
    .nullish()
    .meta({ description: "Store the response, so that it can be retrieved and continued.", default: true }),
  background: z
    .boolean()
    .nullish()
    .meta({ description: "Respond immediately and generate in the background.", default: false }),
  stream: streamField,
  stream_options: z
    .strictObject({
      include_obfuscation: ignored(z.boolean(), "events are not padded"),
    })
    .nullish(),
  metadata: metadataField,
} as const;

const refusedFields = {
  conversation: notBuiltYet("a conversation object"),
  prompt: notBuiltYet("a stored prompt"),
  context_management: notBuiltYet("managing the context", isEmptyArray),
} as const;

const bodyFields = {
  input: inputSchema.nullish(),
  instructions: z
    .string()
    .max(MAX_INSTRUCTIONS_LENGTH)
    .nullish()
    .meta({ description: "System prompt of this response only." }),
  ...commonFields,
  ...openAiFields,
  n: z
    .literal(1, { error: "expected 1: a response has one output; use POST /v1/chat/completions for more" })
    .nullish()
    .meta({ description: "Number of outputs." }),
  ...lifecycleFields,
  include: z
    .array(z.enum(includable))
    .max(2 * includable.length)
    .nullish()
    .meta({
      description:
        "`message.output_text.logprobs` adds log probabilities, `web_search_call.action.sources` the URLs of found pages; other values have no effect.",
    }),
  max_output_tokens: z.int().min(1).nullish().meta({
    description: "Maximum number of output tokens including reasoning; by default the rest of the context.",
  }),
  max_completion_tokens: z.int().min(1).nullish().meta({ description: "Alias of max_output_tokens." }),
  reasoning: reasoningField,
  ...thinkingSwitches,
  chat_template_kwargs: templateVariablesField,
  text: textField,
  response_format: responseFormat,
  truncation: z.enum(["auto", "disabled"]).nullish().meta({
    description: "auto: truncate a prompt that exceeds the context; disabled: refuse it.",
    default: "disabled",
  }),
  logprobs: z
    .boolean()
    .nullish()
    .meta({ description: "Return the log probabilities of the output tokens.", default: false }),
  ...toolFields,
  ...agentFields,
  max_tool_calls: z
    .int()
    .min(1)
    .nullish()
    .meta({ description: "Maximum number of calls of tools that the server runs; further calls are not run." }),
  client_metadata: ignored(z.record(z.string(), z.unknown()), "it concerns only the client"),
  ...refusedFields,
} as const;

export const responseRequestSchema = z
  .strictObject(bodyFields)
  // A stored response may be continued without new input.
  .meta({ if: { required: ["previous_response_id"] }, else: { required: ["input"] } })
  .superRefine((body, context) => addConflicts(context, conflicts(body)));

/** WebSocket message that creates a response. The response is always streamed and never in the background. */
export const responseMessageSchema = z
  .strictObject({
    type: z.literal("response.create"),
    ...bodyFields,
    stream: z.literal(true).nullish().meta({ description: "The response is always streamed." }),
    background: z.literal(false).nullish().meta({ description: "Not available; send the request over HTTP." }),
    generate: refused("preparing a response without generating it is not supported", (value) => value === true),
  })
  .superRefine((body, context) => addConflicts(context, conflicts(body)));

const { input, instructions, previous_response_id, service_tier } = bodyFields;
const { prompt_cache_key, prompt_cache_options, prompt_cache_retention } = bodyFields;

/** Request of POST /v1/responses/compact. */
export const compactRequestSchema = z.strictObject({
  model: z.string().max(MAX_MODEL_LENGTH).meta({ description: "Id of the model that writes the summary." }),
  input,
  instructions,
  previous_response_id,
  prompt_cache_key,
  prompt_cache_options,
  prompt_cache_retention,
  service_tier,
});

export type ResponseRequestBody = z.output<typeof responseRequestSchema>;

/** Converts a body and the messages of its conversation to the request format that all protocols share. */
export function askedRequest(
  body: ResponseRequestBody,
  messages: readonly ChatMessage[],
  continuesLast: boolean,
  serverTools: readonly ToolSpec[],
): AskedRequest {
  return {
    prompt: {
      kind: "chat",
      messages,
      templateArguments: {
        ...templateArguments(withThink(sentThinking(body), body.think)),
        ...otherVariables(body.chat_template_kwargs),
      },
      ...(continuesLast && { continuesLast: true }),
    },
    sampling: samplingOf(body, wantsLogprobs(body) ? (body.top_logprobs ?? 0) : null),
    choices: 1,
    candidates: 1,
    priority: body.priority ?? 0,
    grammar: demandedOutput(body),
    tools: requestedTools(body, serverTools),
    promptLogprobs: null,
    reasoningBudget: body.reasoning_budget ?? null,
    stop: stopStrings(body.stop),
    ignoreEos: body.ignore_eos ?? false,
    stopTokens: body.stop_token_ids ?? [],
    truncatePrompt: body.truncate_sequence ?? body.truncation === "auto",
    ...outputLimit(body, "input", limitNames),
  };
}

/**
 * Returns whether the output continues the last input item. This is the case if that item is an assistant message with text.
 * The last message of a stored response is not continued in this way; a new message follows it.
 */
export function continuesInput({ input }: Pick<ResponseRequestBody, "input">): boolean {
  const last = Array.isArray(input) ? input.at(-1) : undefined;
  if (last === undefined || !("role" in last) || last.role !== "assistant") return false;
  const { content } = last;
  return typeof content === "string" ? content !== "" : content.some((part) => "text" in part && part.text !== "");
}

type Conflicting = Omit<ResponseRequestBody, "input">;

/** Returns the features (tool groups) that the request switches on or off. */
export function featuresOf(body: Conflicting): NamedGroups {
  const hosted = serverToolsOf(body).map(({ type }) => serverToolGroups[type]);
  return namedGroups(body, webToolOf(body) === null ? hosted : [...hosted, "web_search"]);
}

/**
 * Returns the request's fields for the agent loop, with the session of a named container and the approval settings of named MCP
 * servers.
 */
export function sentAgentFields(body: Conflicting): AgentFields {
  const containers = serverToolsOf(body).flatMap((tool) =>
    tool.type === "code_interpreter" && typeof tool.container === "string" ? [sessionOfContainer(tool.container)] : [],
  );
  const asks = body.agent_permission !== "deny" && mcpToolsOf(body).some(asksForApproval);
  return {
    ...body,
    session_id: body.session_id ?? containers[0],
    agent_permission: asks ? "ask" : body.agent_permission,
  };
}

function wantsLogprobs({ include, logprobs, top_logprobs: top }: Conflicting): boolean {
  return logprobs === true || (top ?? 0) > 0 || (include ?? []).includes("message.output_text.logprobs");
}

function* conflicts(body: Conflicting): Iterable<Conflict> {
  if (body.text?.format && body.response_format) {
    yield ["response_format", "is another name of text.format; send one of them"];
  }
  for (const [field, message] of grammarConflicts(grammarFields(body))) yield [sentField(field, body), message];
  const added = namedSpecs(featuresOf(body));
  yield* requestedToolConflicts(body, added);
  yield* callConflicts(namedTools(body, added), { ...body, grammar: sentGrammar(body) });
  yield* samplingConflicts(body);
  const { chat_template_kwargs, reasoning, enable_thinking } = body;
  yield* variableConflicts(chat_template_kwargs, { effort: reasoning?.effort, isOn: enable_thinking });
  yield* thinkConflicts(sentThinking(body), body.think);
  if (isContradictory(withThink(sentThinking(body), body.think))) {
    yield ["reasoning.effort", "contradicts enable_thinking; send one of them"];
  }
  yield* limitConflicts(body, limitNames);
  yield* permissionConflicts(body.agent_permission, body.stream);
  yield* approvalConflicts(mcpToolsOf(body), body.stream);
  if (body.background === true && body.store === false) {
    yield ["background", "needs store: true, from which the response is retrieved"];
  }
}

function grammarFields(body: Conflicting) {
  return { ...body, response_format: textFormat(body.text) ?? body.response_format };
}

function sentThinking({ reasoning, enable_thinking, chat_template_kwargs }: Conflicting): AskedThinking {
  const { effort, isOn } = thinkingAmong(chat_template_kwargs);
  return { effort: reasoning?.effort ?? effort, isOn: enable_thinking ?? isOn };
}

function demandedOutput(body: Conflicting): OutputGrammar | null {
  const demanded = outputGrammar(grammarFields(body));
  return demanded?.kind === "json_schema" ? { ...demanded, field: sentField(demanded.field, body) } : demanded;
}

/**
 * Returns the name under which the client sent a field. Errors must name `text.format` if the client sent it, although it is
 * translated to `response_format`.
 */
function sentField(field: string, { text }: Conflicting): string {
  return field === "response_format" && text?.format ? "text.format" : field;
}
