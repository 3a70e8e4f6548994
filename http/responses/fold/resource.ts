// Response resource as JSON: status, output items, and the settings copied from the request. fold.ts derives its state from the
// generation events.
import type { GenerateRequest, Usage } from "../../../engines/generation.ts";
import { effectiveSampling, type GenerationDefaults } from "../../../engines/sampling-defaults.ts";
import { joinBytes } from "../../../runtime/bytes.ts";
import type { ErrorRecord } from "../../../runtime/errors.ts";
import { statusOf } from "../../errors.ts";
import { generationFields } from "../../shared/answer/adapter-generation.ts";
import { decodedPieces, jsonPieces } from "../../shared/answer/json-pieces.ts";
import type { ResponseRequestBody } from "../request/request.ts";
import { wireText } from "../request/text-format.ts";
import { type FunctionName, wireToolChoice, wireTools } from "../request/tools.ts";
import type { IncompleteReason, OutputItem, ResponseStatus } from "./resource-schema.ts";

const encoder = new TextEncoder();

/** Properties of a response that do not change during generation. */
export interface ResponseHead {
  readonly id: string;
  /** Unix seconds. */
  readonly createdAt: number;
  readonly model: string;
  /**
   * Request settings that the response repeats, as JSON text in UTF-8. The text begins with a comma and is the last part of the
   * response's JSON.
   */
  readonly settings: Uint8Array;
  /** Functions in namespaces, by the name that the model sees. */
  readonly namespacedNames: ReadonlyMap<string, FunctionName>;
  /** Whether items of web searches list the pages found. */
  readonly includesSources: boolean;
}

/** Properties of a response that change during generation. */
export interface ResponseState {
  readonly status: ResponseStatus;
  readonly completedAt: number | null;
  readonly error: ErrorRecord | null;
  readonly incomplete: IncompleteReason | null;
  readonly output: readonly OutputItem[];
  readonly usage: Usage | null;
  /** Version of the LoRA adapter; null if it is not known yet, or if the request uses no adapter. */
  readonly adapterGeneration: string | null;
  /** Session of the agent loop; null if the request does not use the loop. */
  readonly session: string | null;
}

/** Serialises the request settings that a response repeats. `echoedSettings` adds the settings that depend on the model. */
export function settingsText(body: ResponseRequestBody): Uint8Array {
  return encoder.encode(`,${JSON.stringify(responseSettings(body)).slice(1)}`);
}

/**
 * Adds the fields with model-dependent defaults, with the values that the generation uses. Returns the text for
 * `ResponseHead.settings`.
 */
export function echoedSettings(
  settings: Uint8Array,
  { sampling, maxTokens }: Pick<GenerateRequest, "sampling" | "maxTokens">,
  defaults: GenerationDefaults,
): Uint8Array {
  const { temperature, topP, presencePenalty, frequencyPenalty } = effectiveSampling(sampling, defaults);
  const effective = {
    max_output_tokens: maxTokens ?? defaults.maxTokens,
    temperature,
    top_p: topP,
    presence_penalty: presencePenalty,
    frequency_penalty: frequencyPenalty,
  };
  return joinBytes([encoder.encode(`,${JSON.stringify(effective).slice(1, -1)}`), settings]);
}

function responseSettings(body: ResponseRequestBody): object {
  return {
    background: body.background ?? false,
    instructions: body.instructions ?? null,
    max_tool_calls: body.max_tool_calls ?? null,
    parallel_tool_calls: body.parallel_tool_calls ?? true,
    previous_response_id: body.previous_response_id ?? null,
    prompt_cache_key: body.prompt_cache_key ?? null,
    reasoning: { effort: body.reasoning?.effort ?? null, summary: body.reasoning?.summary ?? null },
    safety_identifier: body.safety_identifier ?? null,
    service_tier: "default",
    store: body.store ?? true,
    text: wireText(body.text, body.response_format),
    tool_choice: wireToolChoice(body),
    tools: wireTools(body),
    top_logprobs: body.top_logprobs ?? 0,
    truncation: body.truncation ?? "disabled",
    user: body.user ?? null,
    metadata: body.metadata ?? {},
  };
}

/** Returns a response as JSON text. */
export function responseText(head: ResponseHead, state: ResponseState): string {
  return JSON.stringify(bodyOf(head, state)).slice(0, -1) + [...decodedPieces(head.settings)].join("");
}

/** Yields a long response as JSON, in pieces. */
export function* responsePieces(head: ResponseHead, state: ResponseState): Generator<string> {
  yield* bodyPieces(head, state);
  yield* decodedPieces(head.settings);
}

/** Yields the JSON of a response up to the settings, which are its last part. */
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
    ...(state.session === null ? {} : { session_id: state.session }),
  };
}

/** Returns the state of a response that was still in progress when its server stopped. */
export function interruptedState(state: ResponseState): ResponseState {
  return { ...state, status: "incomplete", incomplete: "interrupted" };
}

/** Copies items, because the originals may change later. */
export function copyOf(output: readonly OutputItem[]): readonly OutputItem[] {
  return output.map((item) => ({
    ...item,
    ...("content" in item && { content: item.content.map((part) => ({ ...part })) }),
  })) as readonly OutputItem[];
}

/** Returns the items without logprobs: the form in which they are stored for later responses that continue the conversation. */
export function withoutLogprobs(output: readonly OutputItem[]): readonly OutputItem[] {
  return output.map((item) => {
    if (item.type !== "message") return item;
    return {
      ...item,
      content: item.content.map((part) => (part.type === "refusal" ? part : { ...part, logprobs: [] })),
    };
  });
}

/** Returns a state without output, which is stored if the complete state cannot be stored. `why`: reason in the state's error. */
export function notKeptState(state: ResponseState, why: keyof typeof notKept): ResponseState {
  return { ...state, status: "failed", completedAt: null, incomplete: null, error: notKept[why], output: [] };
}

const notKept = {
  tooLarge: { code: "invalid_value", message: "the response was generated but is too large to be stored" },
  tooManyWait: {
    code: "storage_unavailable",
    message: "the response was generated but not stored: too many others wait to be written",
  },
} as const;

/** Returns the number of characters of the items' texts, without logprobs. */
export function outputLength(output: readonly OutputItem[]): number {
  let length = 0;
  for (const item of output) {
    if (item.type === "function_call") length += item.arguments.length;
    else if (!("content" in item)) length += JSON.stringify(item).length;
    else for (const part of item.content) length += (part.type === "refusal" ? part.refusal : part.text).length;
  }
  return length;
}

/** Builds the JSON of an error, for the response and for the `error` event. */
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

export function wireUsage(usage: Usage): object {
  return {
    input_tokens: usage.promptTokens,
    input_tokens_details: { cached_tokens: usage.cachedTokens, cache_write_tokens: 0 },
    output_tokens: usage.completionTokens,
    output_tokens_details: { reasoning_tokens: usage.reasoningTokens },
    total_tokens: usage.promptTokens + usage.completionTokens,
  };
}
