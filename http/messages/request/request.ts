// Requests of POST /v1/messages and POST /v1/messages/count_tokens: their schemas and translation to a GenerateRequest. Ignored
// fields and fields that are not implemented yet are listed by name.
import { z } from "zod";
import { requestDefaults } from "../../../engines/generation.ts";
import { expectedVariant } from "../../issues.ts";
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
import { permissionConflicts, permissionField } from "../../shared/fields/tools/permission.ts";
import { callConflicts } from "../../shared/fields/tools/tool-use.ts";
import type { AskedRequest } from "../../shared/translation.ts";
import { cacheControl, conversationFields } from "./content.ts";
import { conversation } from "./conversation.ts";
import { demandedGrammar, outputConflicts, outputFields } from "./output.ts";
import { templateArguments, thinkingBudget, thinkingConflicts, thinkingFields } from "./thinking.ts";
import { requestedToolConflicts, requestedTools, toolFields } from "./tools.ts";

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
  container: notBuiltYet("running code in a container", isEmptyContainer),
  mcp_servers: notBuiltYet("using MCP servers", isEmptyArray),
  compaction: notBuiltYet("compacting a conversation"),
  thread: refused("the server keeps no threads; send the whole conversation without this field"),
  fallbacks: notBuiltYet("falling back to another model", isEmptyArray),
  web_search_options: notBuiltYet("web search"),
  enable_code_execution: notBuiltYet("code execution", (value) => value === false),
  max_tool_rounds: notBuiltYet("a limit of tool rounds"),
  session_id: notBuiltYet("keeping a session"),
  files: notBuiltYet("asking for files", isEmptyArray),
  adapter: refused("the model field selects an adapter; send the id of a model with it, as listed by GET /v1/models"),
  logprobs: refused(ELSEWHERE, (value) => value === false),
  top_logprobs: refused(ELSEWHERE, (value) => value === 0),
} as const;

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
  agent_permission: permissionField,
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

/** Converts a request body to the request that all protocols share. Throws if the messages are not a valid conversation. */
export function askedRequest(
  body: CountRequestBody & { readonly max_tokens?: number | null | undefined },
): AskedRequest {
  const { adapter: _chosen, series: _series, receivedAt: _time, ...defaults } = requestDefaults;
  const messages = conversation(body.system, body.messages);
  return {
    ...defaults,
    prompt: {
      kind: "chat",
      messages: withoutEmptyEnd(messages),
      templateArguments: templateArguments(body),
      ...(continuesLast(messages) && { continuesLast: true }),
    },
    sampling: samplingOf(body, null),
    priority: body.priority ?? 0,
    grammar: demandedGrammar(body),
    tools: requestedTools(body),
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
  yield* requestedToolConflicts(body);
  yield* outputConflicts(body);
  yield* thinkingConflicts(body);
  const use = requestedTools(body);
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

function* answerConflicts(body: Omit<MessagesRequestBody, "messages" | "system">): Iterable<Conflict> {
  yield* permissionConflicts(body.agent_permission, body.stream);
  const budget = thinkingBudget(body);
  if (budget !== null && typeof body.max_tokens === "number" && budget >= body.max_tokens) {
    yield ["thinking.budget_tokens", `expected fewer tokens than max_tokens ${body.max_tokens}, got ${budget}`];
  }
}

/** Checks whether every value in the object is null or an empty array. */
function isEmptyContainer(value: unknown): boolean {
  return (
    typeof value === "object" &&
    value !== null &&
    !Array.isArray(value) &&
    Object.values(value).every((inner) => inner === null || isEmptyArray(inner))
  );
}
