// Owns the body of a message: why it stopped, its usage and all around its content; with the schemas the API document shows
// of it. What it is made of comes from collect.ts, or piece by piece from stream.ts.
import { z } from "zod";
import type { FinishReason } from "../../engines/generation.ts";

/** What the body and the first event of one message share. */
export interface MessageHead {
  readonly id: string;
  readonly model: string;
}

export const contentBlockSchema = z.discriminatedUnion("type", [
  z.strictObject({
    type: z.literal("thinking"),
    thinking: z.string(),
    signature: z.string().meta({ description: "Always empty: nothing is signed" }),
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
  input_tokens: tokenCount.meta({ description: "Tokens of the prompt that were computed" }),
  cache_read_input_tokens: tokenCount.meta({ description: "Tokens of the prompt that were in the cache" }),
  cache_creation_input_tokens: tokenCount.meta({ description: "Always 0: caching costs nothing extra" }),
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
    .meta({ description: "Of a refusal: why the text is not what the request demanded" }),
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

export type ContentBlock = z.output<typeof contentBlockSchema>;
type Stop = z.output<z.ZodObject<typeof stopSchema>>;
type Usage = z.output<typeof usageSchema>;

/** The tokens of a message that has come so far. */
export interface TokenCounts {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly reasoningTokens: number;
}

/** How an answer ended. */
export interface Ending {
  reason: FinishReason;
  stopString: string | null;
  /** Why the text is not what the request demanded; null where it is. */
  refusal: string | null;
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

/** Of a message that goes on. */
export const notStopped: Stop = { stop_reason: null, stop_sequence: null, stop_details: null };

export function wireStop({ reason, stopString, refusal }: Ending): Stop {
  if (refusal !== null) {
    const stop_details = { type: "refusal", category: null, explanation: refusal } as const;
    return { stop_reason: "refusal", stop_sequence: null, stop_details };
  }
  // Whoever may call goes by the calls.
  if (stopString !== null && reason !== "tool_calls")
    return { ...notStopped, stop_reason: "stop_sequence", stop_sequence: stopString };
  return { ...notStopped, stop_reason: stopReasons[reason] };
}

const stopReasons = {
  stop: "end_turn",
  length: "max_tokens",
  tool_calls: "tool_use",
  // Whoever is told of it has not cancelled it: for them the turn is over.
  cancelled: "end_turn",
} as const satisfies Record<FinishReason, Stop["stop_reason"]>;
