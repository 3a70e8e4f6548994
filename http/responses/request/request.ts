// Owns the request of POST /v1/responses: its schema, and what it means as a GenerateRequest once its conversation is known.
// Fields that are known and change nothing, and fields that are not built yet, are here by name.
import { z } from "zod";
import type { ChatMessage, OutputGrammar } from "../../../engines/generation.ts";
import { addConflicts, type Conflict, differing } from "../../shared/fields/conflicts.ts";
import {
  commonFields,
  ignored,
  isEmptyArray,
  notBuiltYet,
  refused,
  samplingOf,
  stopStrings,
  streamField,
} from "../../shared/fields/fields.ts";
import { grammarConflicts, outputGrammar, responseFormat } from "../../shared/fields/grammar-fields.ts";
import { openAiFields } from "../../shared/fields/openai-fields.ts";
import { effortField, templateArguments } from "../../shared/fields/thinking.ts";
import { callConflicts } from "../../shared/fields/tool-use.ts";
import type { AskedRequest } from "../../shared/translation.ts";
import { inputSchema } from "./input-items.ts";
import { textField, textFormat } from "./text-format.ts";
import { requestedToolConflicts, requestedTools, toolFields } from "./tools.ts";

const MAX_INSTRUCTIONS_LENGTH = 16 * 2 ** 20;
const MAX_METADATA_PAIRS = 16;
const MAX_METADATA_KEY = 64;
const MAX_METADATA_VALUE = 512;
const MAX_ID_LENGTH = 256;

const summaries = ["auto", "concise", "detailed"] as const;

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
    effort: effortField,
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
  stream: streamField,
  stream_options: z
    .strictObject({
      include_obfuscation: ignored(z.boolean(), "events are not padded; lengths are hidden by TLS, if at all"),
    })
    .nullish(),
  metadata: metadataField,
} as const;

const refusedFields = {
  max_tool_calls: refused("the server runs no tools; the client counts the calls that it runs"),
  conversation: notBuiltYet("a conversation object"),
  prompt: notBuiltYet("a stored prompt"),
  context_management: notBuiltYet("managing the context", isEmptyArray),
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
    ...openAiFields,
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
    text: textField,
    response_format: responseFormat,
    truncation: z
      .enum(["auto", "disabled"])
      .nullish()
      .meta({ description: "auto: cut a prompt that is too long, instead of refusing it; disabled" }),
    logprobs: z.boolean().nullish().meta({ description: "Report how likely each token of the text was; false" }),
    ...toolFields,
    client_metadata: ignored(z.record(z.string(), z.unknown()), "it is of the client's own sessions and turns"),
    ...refusedFields,
  })
  .superRefine((body, context) => addConflicts(context, conflicts(body)));

export type ResponseRequestBody = z.output<typeof responseRequestSchema>;

/** The neutral request a body asks for, in a conversation. */
export function askedRequest(body: ResponseRequestBody, messages: readonly ChatMessage[]): AskedRequest {
  return {
    prompt: { kind: "chat", messages, templateArguments: templateArguments({ effort: body.reasoning?.effort }) },
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
function* conflicts(body: Conflicting): Iterable<Conflict> {
  if (body.text?.format && body.response_format) {
    yield ["response_format", "is another name of text.format; send one of them"];
  }
  for (const [field, message] of grammarConflicts(grammarFields(body))) yield [sentField(field, body), message];
  yield* requestedToolConflicts(body);
  yield* callConflicts(requestedTools(body), body);
  const { max_output_tokens, max_completion_tokens, max_tokens } = body;
  yield* differing("max_completion_tokens", max_completion_tokens, "max_output_tokens", max_output_tokens);
  yield* differing("max_tokens", max_tokens, "max_output_tokens", max_output_tokens);
  yield* differing("max_tokens", max_tokens, "max_completion_tokens", max_completion_tokens);
  if (body.background === true && body.store === false) {
    yield ["background", "needs store: true, as the answer is fetched from there"];
  }
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
