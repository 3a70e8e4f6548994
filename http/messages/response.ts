// Message body: content, stop reason, usage and the other fields, with their schemas for the API document. Streams use its parts.

import assert from "node:assert/strict";
import { z } from "zod";
import type { FinishReason } from "../../engines/generation.ts";
import type { Answer, AnswerChoice, AnswerPart } from "../shared/answer/answer.ts";
import { readCutObject } from "./cut-object.ts";

/** Fields that the body and the first stream event of a message share. */
export interface MessageHead {
  readonly id: string;
  readonly model: string;
}

export const contentBlockSchema = z.discriminatedUnion("type", [
  z.strictObject({
    type: z.literal("thinking"),
    thinking: z.string(),
    signature: z.string().meta({ description: "Always empty: reasoning is not signed." }),
  }),
  z.strictObject({ type: z.literal("text"), text: z.string() }),
  z.strictObject({
    type: z.literal("tool_use"),
    id: z.string(),
    name: z.string(),
    input: z.unknown(),
    caller: z.strictObject({ type: z.literal("direct") }),
  }),
]);

const tokenCount = z.int().min(0);

const usageSchema = z.strictObject({
  input_tokens: tokenCount.meta({ description: "Prompt tokens computed in prefill." }),
  cache_read_input_tokens: tokenCount.meta({ description: "Prompt tokens read from the prefix cache." }),
  cache_creation_input_tokens: tokenCount.meta({ description: "Always 0: cache writes are not counted separately." }),
  output_tokens: tokenCount,
  output_tokens_details: z.strictObject({ thinking_tokens: tokenCount }),
  server_tool_use: z.null(),
});

const stopSchema = {
  stop_reason: z.enum(["end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal"]).nullable(),
  stop_sequence: z.string().nullable(),
  stop_details: z
    .strictObject({ type: z.literal("refusal"), category: z.null(), explanation: z.string() })
    .nullable()
    .meta({
      description: "The reason for a refusal: why the output does not meet the request's demands; null otherwise.",
    }),
} as const;

const container = z.null();

export const messageSchema = z.strictObject({
  id: z.string(),
  type: z.literal("message"),
  role: z.literal("assistant"),
  model: z.string(),
  content: z.array(contentBlockSchema).readonly(),
  ...stopSchema,
  container,
  diagnostics: z.null(),
  usage: usageSchema.extend({
    cache_creation: z.strictObject({ ephemeral_5m_input_tokens: tokenCount, ephemeral_1h_input_tokens: tokenCount }),
    inference_geo: z.null(),
    service_tier: z.literal("standard"),
    speed: z.null(),
  }),
});

export const messageDeltaSchema = z.strictObject({
  type: z.literal("message_delta"),
  delta: z.strictObject({ ...stopSchema, container }),
  usage: usageSchema,
});

type ContentBlock = z.output<typeof contentBlockSchema>;
type Stop = z.output<z.ZodObject<typeof stopSchema>>;
type Usage = z.output<typeof usageSchema>;

/** Token counts of a message up to now. */
export interface TokenCounts {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly reasoningTokens: number;
}

/** End of a generation: why it ended, and its stop string. */
export type Ending = Pick<AnswerChoice, "finishReason" | "stopString" | "refusal">;

/** Builds the response body of a generation with one choice. */
export function wholeMessage(head: MessageHead, { choices, usage }: Answer): object {
  const [choice] = choices;
  assert(choice);
  return message(head, choice.parts.map(contentBlock), wireStop(choice), usage);
}

function contentBlock(part: AnswerPart): ContentBlock {
  const { kind, text } = part;
  if (kind === "call") {
    const input: unknown = part.isCut ? readCutObject(text) : JSON.parse(text);
    return { type: "tool_use", id: part.id, name: part.name, input, caller: { type: "direct" } };
  }
  return kind === "text" ? { type: "text", text } : { type: "thinking", thinking: text, signature: "" };
}

export function message(head: MessageHead, content: readonly ContentBlock[], stop: Stop, counts: TokenCounts): object {
  return {
    id: head.id,
    type: "message",
    role: "assistant",
    model: head.model,
    content,
    ...stop,
    container: null,
    diagnostics: null,
    usage: {
      ...wireUsage(counts),
      cache_creation: { ephemeral_5m_input_tokens: 0, ephemeral_1h_input_tokens: 0 },
      inference_geo: null,
      service_tier: "standard",
      speed: null,
    },
  } satisfies z.input<typeof messageSchema>;
}

export function wireUsage({ promptTokens, cachedTokens, completionTokens, reasoningTokens }: TokenCounts): Usage {
  return {
    input_tokens: promptTokens - cachedTokens,
    cache_read_input_tokens: cachedTokens,
    cache_creation_input_tokens: 0,
    output_tokens: completionTokens,
    output_tokens_details: { thinking_tokens: reasoningTokens },
    server_tool_use: null,
  };
}

/** Stop fields of a message that is still being generated. */
export const notStopped: Stop = { stop_reason: null, stop_sequence: null, stop_details: null };

export function wireStop({ finishReason, stopString, refusal }: Ending): Stop {
  if (refusal !== null) {
    const stop_details = { type: "refusal", category: null, explanation: refusal } as const;
    return { stop_reason: "refusal", stop_sequence: null, stop_details };
  }
  // Tool calls take precedence over a stop string, because the client has to run them.
  if (stopString !== null && finishReason !== "tool_calls")
    return { ...notStopped, stop_reason: "stop_sequence", stop_sequence: stopString };
  return { ...notStopped, stop_reason: stopReasons[finishReason] };
}

const stopReasons = {
  stop: "end_turn",
  length: "max_tokens",
  tool_calls: "tool_use",
  // A client that has cancelled its request receives no response. For other clients, a cancelled generation is reported as a
  // normal end.
  cancelled: "end_turn",
} as const satisfies Record<FinishReason, Stop["stop_reason"]>;
