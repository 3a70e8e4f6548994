// Owns the request of POST /v1/responses: its schema, and what it means as a GenerateRequest once its conversation is known.
// Fields that are known and change nothing, and fields that are not built yet, are here by name.
import { z } from "zod";
import type { ChatMessage, GenerateRequest, OutputGrammar, TemplateArguments } from "../../engines/chat.ts";
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
import { inputSchema } from "./input-items.ts";
import { textField, textFormat } from "./text-format.ts";
import { requestedTools, toolFields, toolIssues } from "./tools.ts";

const MAX_INSTRUCTIONS_LENGTH = 16 * 2 ** 20;
const MAX_METADATA_PAIRS = 16;
const MAX_METADATA_KEY = 64;
const MAX_METADATA_VALUE = 512;
const MAX_ID_LENGTH = 256;

const efforts = ["off", "none", "minimal", "low", "medium", "high", "xhigh", "max"] as const;
const summaries = ["auto", "concise", "detailed"] as const;
const CACHED_ANYWAY = "the start of a prompt is cached wherever it is used again";

/** What may be asked to come with an answer; what has no such items lacks nothing. */
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
    effort: z
      .enum(efforts)
      .nullish()
      .meta({ description: "How long to think, where the model can tell; none: not at all" }),
    summary: ignored(z.enum(summaries), "thinking is given whole, as content of its item"),
    generate_summary: ignored(z.enum(summaries), "thinking is given whole, as content of its item"),
    context: ignored(z.string(), "the model's template decides which thinking of earlier turns it reads"),
    mode: ignored(z.string(), "there is one mode"),
  })
  .nullish();

const metadataField = z
  .record(z.string().max(MAX_METADATA_KEY), z.string().max(MAX_METADATA_VALUE))
  .refine((pairs) => Object.keys(pairs).length <= MAX_METADATA_PAIRS, {
    error: `expected at most ${MAX_METADATA_PAIRS} pairs, got more`,
  })
  .nullish()
  .meta({ description: "Kept with the response, and shown with it" });

const lifecycleFields = {
  previous_response_id: z
    .string()
    .max(MAX_ID_LENGTH)
    .nullish()
    .meta({ description: "The conversation goes on from this response; its instructions do not" }),
  store: z
    .boolean()
    .nullish()
    .meta({ description: "Keep the response, so that it can be fetched and gone on from; true" }),
  background: z
    .boolean()
    .nullish()
    .meta({ description: "Answer at once, and generate whether or not the client waits; false" }),
  stream: z.boolean().nullish().meta({ description: "Answer piece by piece, as server-sent events; false" }),
  stream_options: z
    .strictObject({
      include_obfuscation: ignored(z.boolean(), "events are not padded; lengths are hidden by TLS, if at all"),
    })
    .nullish(),
  metadata: metadataField,
} as const;

const ignoredFields = {
  service_tier: ignored(z.string(), "there is one tier; a request is put before others by priority"),
  safety_identifier: ignored(z.string(), "clients take turns by their API key or address"),
  prompt_cache_key: ignored(z.string(), CACHED_ANYWAY),
  prompt_cache_retention: ignored(z.string(), CACHED_ANYWAY),
  prompt_cache_options: ignored(z.record(z.string(), z.unknown()), CACHED_ANYWAY),
  client_metadata: ignored(z.record(z.string(), z.unknown()), "it is of the client's own sessions and turns"),
} as const;

const refusedFields = {
  max_tool_calls: refused("the server runs no tools; the client counts the calls that it runs"),
  max_tool_rounds: notBuiltYet("a limit of tool rounds"),
  conversation: notBuiltYet("a conversation object"),
  prompt: notBuiltYet("a stored prompt"),
  context_management: notBuiltYet("managing the context", isEmptyArray),
  moderation: notBuiltYet("moderation"),
  files: notBuiltYet("asking for files", isEmptyArray),
} as const;

export const responseRequestSchema = z
  .strictObject({
    input: inputSchema.nullish(),
    instructions: z
      .string()
      .max(MAX_INSTRUCTIONS_LENGTH)
      .nullish()
      .meta({ description: "What the model is told first, of this response alone" }),
    ...commonFields,
    n: z.literal(1, { error: "expected 1: a response has one answer; chat completions take more" }).nullish(),
    ...lifecycleFields,
    include: z
      .array(z.enum(includable))
      .max(2 * includable.length)
      .nullish()
      .meta({ description: "`message.output_text.logprobs` adds those; the others ask for nothing that is left out" }),
    max_output_tokens: z
      .int()
      .min(1)
      .nullish()
      .meta({ description: "Most tokens of an answer, thinking included; left out, it may fill the context" }),
    max_completion_tokens: z.int().min(1).nullish().meta({ description: "Another name of max_output_tokens" }),
    reasoning: reasoningField,
    reasoning_budget: z
      .int()
      .min(0)
      .nullish()
      .meta({ description: "Most tokens of thinking; what follows is the answer. Not of the contract" }),
    text: textField,
    response_format: responseFormat,
    truncation: z
      .enum(["auto", "disabled"])
      .nullish()
      .meta({ description: "auto: cut a prompt that is too long, instead of refusing it; disabled" }),
    logprobs: z.boolean().nullish().meta({ description: "Report how likely each token of the text was; false" }),
    top_logprobs: z.int().min(0).max(20).nullish().meta({ description: "Likeliest tokens to report beside each; 0" }),
    ...toolFields,
    ...ignoredFields,
    ...refusedFields,
  })
  .superRefine((body, context) => {
    for (const issue of conflicts(body)) context.addIssue(issue);
  });

export type ResponseRequestBody = z.output<typeof responseRequestSchema>;

/** The neutral request a body asks for, in a conversation. */
export function toGenerateRequest(
  body: ResponseRequestBody,
  messages: readonly ChatMessage[],
  origin: Origin,
): GenerateRequest {
  return {
    ...origin,
    prompt: { kind: "chat", messages, templateArguments: templateArguments(body) },
    sampling: samplingOf(body, wantsLogprobs(body) ? (body.top_logprobs ?? 0) : null),
    choices: 1,
    candidates: 1,
    priority: body.priority ?? 0,
    grammar: demandedOutput(body),
    tools: requestedTools(body),
    promptLogprobs: null,
    reasoningBudget: body.reasoning_budget ?? null,
    stop: stopStrings(body.stop),
    maxTokens: maxOutputTokens(body),
    ignoreEos: body.ignore_eos ?? false,
    truncatePrompt: body.truncate_sequence ?? body.truncation === "auto",
  };
}

export function maxOutputTokens(body: ResponseRequestBody): number | null {
  return body.max_output_tokens ?? body.max_completion_tokens ?? body.max_tokens ?? null;
}

type Conflicting = Omit<ResponseRequestBody, "input">;

function wantsLogprobs({ include, logprobs, top_logprobs: top }: Conflicting): boolean {
  return logprobs === true || (top ?? 0) > 0 || (include ?? []).includes("message.output_text.logprobs");
}

/** Fields that are right alone and wrong together. */
function* conflicts(body: Conflicting): Iterable<ReturnType<typeof fieldIssue>> {
  if (body.text?.format && body.response_format) {
    yield fieldIssue("response_format", "is another name of text.format; send one of them");
  }
  const grammar = grammarFields(body);
  for (const [field, message] of grammarConflicts(grammar)) yield fieldIssue(sentField(field, body), message);
  yield* toolIssues(body);
  const tools = requestedTools(body);
  if (tools !== null && body.grammar) {
    yield fieldIssue(
      "grammar",
      'cannot be combined with tools, which are called in another form; send tool_choice "none"',
    );
  }
  if (tools?.required && body.ignore_eos === true) {
    yield fieldIssue("ignore_eos", "cannot be combined with a required call: the answer ends where the call ends");
  }
  yield* differing("max_completion_tokens", body.max_completion_tokens, body.max_output_tokens);
  yield* differing("max_tokens", body.max_tokens, body.max_output_tokens ?? body.max_completion_tokens);
  if (body.background === true && body.store === false) {
    yield fieldIssue("background", "needs store: true, as the answer is fetched from there");
  }
}

function* differing(field: string, value: number | null | undefined, other: number | null | undefined) {
  if (typeof value !== "number" || typeof other !== "number" || value === other) return;
  yield fieldIssue(field, `${value} contradicts max_output_tokens: ${other}; send one of them`);
}

function grammarFields({ grammar, text, response_format, ignore_eos }: Conflicting) {
  return { grammar, response_format: textFormat(text) ?? response_format, ignore_eos };
}

function demandedOutput(body: Conflicting): OutputGrammar | null {
  const demanded = outputGrammar(grammarFields(body));
  return demanded?.kind === "json_schema" ? { ...demanded, field: sentField(demanded.field, body) } : demanded;
}

/** Under which name a field came: what this protocol calls `text.format` is read as `response_format`. */
function sentField(field: string, { text }: Conflicting): string {
  return field === "response_format" && text?.format ? "text.format" : field;
}

/** An effort implies thinking, and none its absence. */
function templateArguments({ reasoning }: Conflicting): TemplateArguments {
  const effort = reasoning?.effort ?? undefined;
  if (effort === undefined) return {};
  if (effort === "none" || effort === "off") return { enableThinking: false, reasoningEffort: "off" };
  return { enableThinking: true, reasoningEffort: effort === "max" ? "xhigh" : effort };
}
