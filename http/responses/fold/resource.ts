// Owns what a response looks like on the wire: the resource, its output items, and the echo of what was asked. Built up by
// fold.ts while the answer comes.
import type { Usage } from "../../../engines/generation.ts";
import type { ErrorRecord } from "../../../runtime/errors.ts";
import { statusOf } from "../../errors.ts";
import { generationFields } from "../../shared/answer/adapter-generation.ts";
import { decodedPieces, jsonPieces } from "../../shared/answer/json-pieces.ts";
import type { WireTokenLogprob } from "../../shared/answer/logprobs.ts";
import { maxOutputTokens, type ResponseRequestBody } from "../request/request.ts";
import { wireText } from "../request/text-format.ts";
import { type FunctionName, wireToolChoice, wireTools } from "../request/tools.ts";

const encoder = new TextEncoder();

export type ResponseStatus = "queued" | "in_progress" | "completed" | "failed" | "incomplete" | "cancelled";
export type ItemStatus = "in_progress" | "completed" | "incomplete";
export type IncompleteReason = "max_output_tokens" | "interrupted";

export interface OutputText {
  readonly type: "output_text";
  text: string;
  readonly annotations: readonly never[];
  /** Empty, or written by jsonPieces. */
  logprobs: readonly WireTokenLogprob[];
}

export interface Refusal {
  readonly type: "refusal";
  refusal: string;
}

export interface MessageItem {
  readonly id: string;
  readonly type: "message";
  status: ItemStatus;
  readonly role: "assistant";
  readonly content: (OutputText | Refusal)[];
}

export interface FunctionCallItem {
  readonly id: string;
  readonly type: "function_call";
  status: ItemStatus;
  readonly call_id: string;
  readonly name: string;
  readonly namespace?: string;
  arguments: string;
}

export interface ReasoningItem {
  readonly id: string;
  readonly type: "reasoning";
  status: ItemStatus;
  readonly summary: readonly never[];
  readonly content: { readonly type: "reasoning_text"; text: string }[];
  readonly encrypted_content: null;
}

export type OutputItem = MessageItem | FunctionCallItem | ReasoningItem;

/** What a response says of itself that never changes. */
export interface ResponseHead {
  readonly id: string;
  /** Unix seconds. */
  readonly createdAt: number;
  readonly model: string;
  /** The request's own settings, as they are shown: the end of the response's JSON text, from a comma on, in UTF-8. */
  readonly settings: Uint8Array;
  /** Functions that are shown in a namespace, by the names that the model knows them by. */
  readonly namespacedNames: ReadonlyMap<string, FunctionName>;
}

/** What changes while it is generated. */
export interface ResponseState {
  readonly status: ResponseStatus;
  readonly completedAt: number | null;
  readonly error: ErrorRecord | null;
  readonly incomplete: IncompleteReason | null;
  readonly output: readonly OutputItem[];
  readonly usage: Usage | null;
  /** null until it is known, and for the model alone. */
  readonly adapterGeneration: string | null;
}

/** The settings of a request as a response shows them: see ResponseHead. */
export function settingsText(body: ResponseRequestBody): Uint8Array {
  return encoder.encode(`,${JSON.stringify(responseSettings(body)).slice(1)}`);
}

function responseSettings(body: ResponseRequestBody): object {
  return {
    background: body.background ?? false,
    instructions: body.instructions ?? null,
    max_output_tokens: maxOutputTokens(body),
    max_tool_calls: null,
    parallel_tool_calls: body.parallel_tool_calls ?? true,
    previous_response_id: body.previous_response_id ?? null,
    prompt_cache_key: body.prompt_cache_key ?? null,
    reasoning: { effort: body.reasoning?.effort ?? null, summary: body.reasoning?.summary ?? null },
    safety_identifier: body.safety_identifier ?? null,
    service_tier: "default",
    store: body.store ?? true,
    temperature: body.temperature ?? 1,
    text: wireText(body.text, body.response_format),
    tool_choice: wireToolChoice(body),
    tools: wireTools(body),
    top_logprobs: body.top_logprobs ?? 0,
    top_p: body.top_p ?? 1,
    presence_penalty: body.presence_penalty ?? 0,
    frequency_penalty: body.frequency_penalty ?? 0,
    truncation: body.truncation ?? "disabled",
    user: body.user ?? null,
    metadata: body.metadata ?? {},
  };
}

/** A response as it is answered: JSON. */
export function responseText(head: ResponseHead, state: ResponseState): string {
  return JSON.stringify(bodyOf(head, state)).slice(0, -1) + [...decodedPieces(head.settings)].join("");
}

/** The same in pieces, for a long one. */
export function* responsePieces(head: ResponseHead, state: ResponseState): Generator<string> {
  yield* bodyPieces(head, state);
  yield* decodedPieces(head.settings);
}

/** A response as it is answered, up to where its settings follow. */
export function* bodyPieces(head: ResponseHead, state: ResponseState): Generator<string> {
  let held = "";
  for (const piece of jsonPieces(bodyOf(head, state))) {
    if (held !== "") yield held;
    held = piece;
  }
  yield held.slice(0, -1);
}

function bodyOf(head: ResponseHead, state: ResponseState): object {
  return {
    id: head.id,
    object: "response",
    created_at: head.createdAt,
    completed_at: state.completedAt,
    status: state.status,
    error: state.error === null ? null : wireError(state.error),
    incomplete_details: state.incomplete === null ? null : { reason: state.incomplete },
    model: head.model,
    output: state.output,
    output_text: outputText(state.output),
    usage: state.usage === null ? null : wireUsage(state.usage),
    ...generationFields(state.adapterGeneration),
  };
}

/** A response that nobody is going to finish: the server that made it is gone. */
export function interruptedState(state: ResponseState): ResponseState {
  return { ...state, status: "incomplete", incomplete: "interrupted" };
}

/** A copy of items that are still written to. */
export function copyOf(output: readonly OutputItem[]): readonly OutputItem[] {
  return output.map((item) => ({
    ...item,
    ...("content" in item && { content: item.content.map((part) => ({ ...part })) }),
  })) as readonly OutputItem[];
}

/** Items as a conversation goes on from them, which has no use for logprobs. */
export function withoutLogprobs(output: readonly OutputItem[]): readonly OutputItem[] {
  return output.map((item) => {
    if (item.type !== "message") return item;
    return {
      ...item,
      content: item.content.map((part) => (part.type === "refusal" ? part : { ...part, logprobs: [] })),
    };
  });
}

/** What is kept of a response that cannot be kept as a whole: that there was one, what it was asked for, and why. */
export function notKeptState(state: ResponseState, why: keyof typeof notKept): ResponseState {
  return { ...state, status: "failed", completedAt: null, incomplete: null, error: notKept[why], output: [] };
}

const notKept = {
  tooLarge: { code: "invalid_value", message: "the response was generated, and was too large to be kept" },
  tooManyWait: {
    code: "storage_unavailable",
    message: "the response was generated, and was not kept: too many others waited to be written",
  },
} as const;

/** Characters of what items say, without their logprobs. */
export function outputLength(output: readonly OutputItem[]): number {
  let length = 0;
  for (const item of output) {
    if (item.type === "function_call") length += item.arguments.length;
    else for (const part of item.content) length += (part.type === "refusal" ? part.refusal : part.text).length;
  }
  return length;
}

/** Also the body of the `error` event. */
export function wireError({ code, message, param }: ErrorRecord): object {
  const status = statusOf(code);
  const type = status < 500 && status !== 429 ? "validation_error" : "internal_error";
  return { type, code, message, ...(param === undefined ? {} : { param }) };
}

function outputText(output: readonly OutputItem[]): string {
  let text = "";
  for (const item of output) {
    if (item.type !== "message") continue;
    for (const part of item.content) if (part.type === "output_text") text += part.text;
  }
  return text;
}

function wireUsage(usage: Usage): object {
  return {
    input_tokens: usage.promptTokens,
    input_tokens_details: { cached_tokens: usage.cachedTokens, cache_write_tokens: 0 },
    output_tokens: usage.completionTokens,
    output_tokens_details: { reasoning_tokens: usage.reasoningTokens },
    total_tokens: usage.promptTokens + usage.completionTokens,
  };
}
