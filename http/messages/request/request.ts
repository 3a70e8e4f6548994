// Requests of POST /v1/messages and POST /v1/messages/count_tokens: their schemas and translation to a GenerateRequest. The
// schemas also list ignored fields and fields that are not implemented yet.
import { z } from "zod";
import type { AgentOptions } from "../../../actors/api/agent/agents.ts";
import { type ChatMessage, requestDefaults, type ToolSpec } from "../../../engines/generation.ts";
import { expected, expectedVariant } from "../../issues.ts";
import {
  type AgentFields,
  agentFields,
  agentOptions,
  digestsOf,
  type NamedGroups,
  namedGroups,
  namedSpecs,
  runRequest,
} from "../../shared/agent/request-fields.ts";
import { type OfferedTools, runTools, type ToolNeeds } from "../../shared/agent/run-tools.ts";
import { continuesLast, withoutEmptyEnd } from "../../shared/continuation.ts";
import { addConflicts, type Conflict } from "../../shared/fields/conflicts.ts";
import {
  commonFields,
  ignored,
  isEmptyArray,
  notBuiltYet,
  notYet,
  refused,
  refusedVariants,
  samplingConflicts,
  samplingOf,
  stopStringList,
  streamField,
} from "../../shared/fields/fields.ts";
import { sentGrammar } from "../../shared/fields/grammar-fields.ts";
import { limitConflicts, outputLimit } from "../../shared/fields/output-limit.ts";
import { permissionConflicts } from "../../shared/fields/tools/permission.ts";
import {
  MAX_SKILLS,
  sessionOfContainer,
  skillId,
  skillVersion,
  versionOf,
} from "../../shared/fields/tools/tool-fields.ts";
import { callConflicts } from "../../shared/fields/tools/tool-use.ts";
import { webSearchOptionsField } from "../../shared/fields/tools/web-search.ts";
import type { AskedRequest } from "../../shared/translation.ts";
import { cacheControl, conversationFields } from "./content.ts";
import { conversation } from "./conversation.ts";
import { demandedGrammar, outputConflicts, outputFields } from "./output.ts";
import { domainConflicts, mcpServersField, namedServers, webUseOfTools } from "./server-tools.ts";
import { templateArguments, thinkingBudget, thinkingConflicts, thinkingFields } from "./thinking.ts";
import {
  choiceOf,
  clientToolNames,
  codeExecutionOf,
  namedTools,
  requestedToolConflicts,
  requestedTools,
  serverToolsOf,
  toolFields,
} from "./tools.ts";

const MAX_CONTAINER_ID = 256;
const limitNames = ["max_tokens", "max_completion_tokens", "n_predict"] as const;

const ELSEWHERE = "responses of this protocol have no logprobs; use POST /v1/chat/completions";
const ONE_TIER = "there is one tier; use priority";
const NO_ACCOUNTS = "the server has no accounts";

const contextEdit = z.discriminatedUnion(
  "type",
  [
    z.looseObject({ type: z.literal("clear_thinking_20251015") }).meta({
      support: "ignored",
      description: "Ignored: the chat template decides which earlier thinking the prompt contains",
    }),
    refusedVariants(["clear_tool_uses_20250919", "compact_20260112"], (type) => notYet(`an edit of type "${type}"`)),
  ],
  { error: expectedVariant("an edit", "type", ["clear_thinking_20251015"]) },
);

const ignoredFields = {
  cache_control: cacheControl,
  metadata: ignored(
    z.looseObject({ user_id: z.string().nullish() }),
    "requests are scheduled fairly by API key or client address",
  ),
  service_tier: ignored(z.enum(["auto", "standard_only"]), ONE_TIER),
  speed: ignored(z.enum(["standard", "fast"]), ONE_TIER),
  betas: ignored(z.array(z.string()), "every feature is available without its beta name"),
  inference_geo: ignored(z.string(), "the server has one location"),
  user_profile_id: ignored(z.string(), NO_ACCOUNTS),
  workspace_id: ignored(z.string(), NO_ACCOUNTS),
  billing_policy: ignored(z.unknown(), NO_ACCOUNTS),
  fallback_credit_token: ignored(z.unknown(), NO_ACCOUNTS),
  diagnostics: ignored(z.unknown(), "the usage reports cached tokens"),
} as const;

const refusedFields = {
  compaction: notBuiltYet("compacting a conversation"),
  thread: refused("the server keeps no threads; send the whole conversation without this field"),
  fallbacks: notBuiltYet("falling back to another model", isEmptyArray),
  adapter: refused("the model field selects an adapter; send the id of a model with it, as listed by GET /v1/models"),
  logprobs: refused(ELSEWHERE, (value) => value === false),
  top_logprobs: refused(ELSEWHERE, (value) => value === 0),
} as const;

const skill = z.discriminatedUnion(
  "type",
  [
    z.strictObject({ type: z.literal("custom"), skill_id: skillId, version: skillVersion }),
    refusedVariants(["anthropic"], () => 'skills of another vendor are not here; upload one and send type "custom"'),
  ],
  { error: expectedVariant("a skill", "type", ["custom"]) },
);

const containerField = z
  .union(
    [
      z.string().max(MAX_CONTAINER_ID),
      z.strictObject({
        id: z.string().max(MAX_CONTAINER_ID).nullish(),
        skills: z.array(skill).max(MAX_SKILLS).nullish().meta({ description: "Skills that the model can use." }),
      }),
    ],
    { error: expected("the id of a container, or an object with the id") },
  )
  .nullish()
  .meta({ description: "Container of an earlier response, whose files and state the server's tools use." });

const { max_tokens, ...sharedFields } = z
  .strictObject(commonFields)
  .omit({ n: true, stop: true, user: true, adapter: true, grammar: true }).shape;

const countedFields = {
  ...conversationFields,
  ...toolFields,
  ...thinkingFields,
  ...sharedFields,
  stop_sequences: stopStringList
    .nullish()
    .meta({ description: "Strings that end the output; the output does not contain them." }),
  ...outputFields,
  context_management: z.strictObject({ edits: z.array(contextEdit).nullish() }).nullish(),
  ...agentFields,
  container: containerField,
  mcp_servers: mcpServersField,
  web_search_options: webSearchOptionsField,
  ...refusedFields,
  ...ignoredFields,
} as const;

export const countRequestSchema = z
  .strictObject(countedFields)
  .superRefine((body, context) => addConflicts(context, conflicts(body)));

export const messagesRequestSchema = z
  .strictObject({
    ...countedFields,
    max_tokens,
    stream: streamField,
  })
  .superRefine((body, context) => {
    addConflicts(context, conflicts(body));
    addConflicts(context, answerConflicts(body));
  });

type CountRequestBody = z.output<typeof countRequestSchema>;
type MessagesRequestBody = z.output<typeof messagesRequestSchema>;

/**
 * Converts a request body to the request format that all protocols share and to the options of the agent loop. `offered`: tools
 * of the server; null: no agent loop. Throws if the messages are not a valid conversation, and `unsupported` if the body needs
 * a feature that the server does not offer.
 */
export function askedRun(
  body: CountRequestBody & {
    readonly max_tokens?: number | null | undefined;
    readonly stream?: boolean | null | undefined;
  },
  offered: OfferedTools | null,
): { readonly asked: AskedRequest; readonly agent: AgentOptions | null } {
  const { messages: sent, files, earlierCalls, loadedTools, media } = conversation(body.system, body.messages);
  const needs = toolNeeds(body, offered, sent, files.length > 0);
  const tools = runTools(needs, offered);
  const isPaused = tools !== null && sent.at(-1)?.role === "assistant" && endsWithServerCall(body.messages);
  const messages = isPaused ? sent : withoutEmptyEnd(sent);
  const asked = {
    ...askedRequest(body, messages, loadedTools, tools?.specs ?? []),
    ...(media && { media }),
  };
  if (tools === null) return { asked, agent: null };
  const { web, skills } = needs;
  const digests = digestsOf(messages);
  const isStreamed = body.stream ?? false;
  const seen = { inputFiles: files, digests, earlierCalls };
  const options = { ...tools, ...seen, web, skills, isStreamed, continuesAnswer: isPaused };
  return runRequest(asked, agentOptions(needs.fields, options));
}

function toolNeeds(
  body: CountRequestBody,
  offered: OfferedTools | null,
  sent: readonly ChatMessage[],
  hasFiles: boolean,
): ToolNeeds {
  const serverTools = serverToolsOf(body);
  const addsShell = codeExecutionOf(body).shell && body.enable_shell !== false && offered?.groups.includes("shell");
  const named = featuresOf(body);
  return {
    named: addsShell ? { ...named, shell: true } : named,
    fields: sentAgentFields(body),
    hasFiles,
    functions: clientToolNames(body),
    servers: namedServers(serverTools, body.mcp_servers),
    skills: skillsOf(body),
    web: webUseOfTools(serverTools, body.web_search_options),
    choice: choiceOf(body),
    hasRoom: sentGrammar(body) === null && !continuesLast(withoutEmptyEnd(sent)),
  };
}

function skillsOf({ container }: Pick<CountRequestBody, "container">): ToolNeeds["skills"] {
  if (typeof container !== "object") return [];
  return (container?.skills ?? []).map(({ skill_id: id, version }) => ({ id, version: versionOf(version) }));
}

/**
 * Returns whether the last message is an assistant message with server calls. The output continues such a message, even if it
 * has no text.
 */
function endsWithServerCall(messages: CountRequestBody["messages"]): boolean {
  const last = messages.at(-1);
  if (last?.role !== "assistant" || typeof last.content === "string") return false;
  return last.content.some(({ type }) => type === "server_tool_use" || type === "mcp_tool_use");
}

function askedRequest(
  body: CountRequestBody & { readonly max_tokens?: number | null | undefined },
  messages: readonly ChatMessage[],
  loadedTools: ReadonlySet<string>,
  serverTools: readonly ToolSpec[],
): AskedRequest {
  const { adapter: _chosen, series: _series, receivedAt: _time, ...defaults } = requestDefaults;
  return {
    ...defaults,
    prompt: {
      kind: "chat",
      messages,
      templateArguments: templateArguments(body),
      ...(continuesLast(messages) && { continuesLast: true }),
    },
    sampling: samplingOf(body, null),
    priority: body.priority ?? 0,
    grammar: demandedGrammar(body),
    tools: requestedTools(body, serverTools, loadedTools),
    reasoningBudget: thinkingBudget(body),
    stop: body.stop_sequences ?? [],
    ignoreEos: body.ignore_eos ?? false,
    stopTokens: body.stop_token_ids ?? [],
    truncatePrompt: body.truncate_sequence ?? false,
    ...outputLimit(body, "messages", limitNames),
  };
}

type Conflicting = Omit<CountRequestBody, "messages" | "system">;

function* conflicts(body: Conflicting): Iterable<Conflict> {
  const added = namedSpecs(featuresOf(body));
  yield* requestedToolConflicts(body, added);
  yield* domainConflicts(serverToolsOf(body));
  yield* outputConflicts(body);
  yield* thinkingConflicts(body);
  const use = namedTools(body, added, null);
  yield* callConflicts(use, { ...body, grammar: sentGrammar(body) });
  yield* limitConflicts<(typeof limitNames)[number]>(body, limitNames);
  yield* samplingConflicts(body);
  const isForced = use !== null && (use.required || use.specs.some(({ strict }) => strict));
  if (thinkingBudget(body) !== null && (isForced || demandedGrammar(body) !== null)) {
    yield [
      "thinking",
      "a budget cannot be combined with a grammar, an output format, a required call or strict tools, which " +
        'leave no room for it; send {"type": "adaptive"}',
    ];
  }
}

/** Returns the features (tool groups) that the request switches on or off. */
function featuresOf(body: Conflicting): NamedGroups {
  const { search, fetch } = serverToolsOf(body);
  const searches = search !== undefined || fetch !== undefined || Boolean(body.web_search_options);
  return namedGroups(body, [
    ...(codeExecutionOf(body).code ? (["code_execution"] as const) : []),
    ...(searches ? (["web_search"] as const) : []),
  ]);
}

/** Returns the request's fields for the agent loop. If the request names a container, its id gives the id of the agent session. */
function sentAgentFields(body: Conflicting): AgentFields {
  const { container } = body;
  const id = typeof container === "string" ? container : container?.id;
  return { ...body, session_id: body.session_id ?? (typeof id === "string" ? sessionOfContainer(id) : undefined) };
}

function* answerConflicts(body: Omit<MessagesRequestBody, "messages" | "system">): Iterable<Conflict> {
  yield* permissionConflicts(body.agent_permission, body.stream);
  const budget = thinkingBudget(body);
  if (budget !== null && typeof body.max_tokens === "number" && budget >= body.max_tokens) {
    yield ["thinking.budget_tokens", `expected fewer tokens than max_tokens ${body.max_tokens}, got ${budget}`];
  }
}
