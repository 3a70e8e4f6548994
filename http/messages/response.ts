// Body of a message: content, stop reason, usage and the other fields, with their schemas for the API document. stream.ts uses
// some of these functions.

import assert from "node:assert/strict";
import { z } from "zod";
import { sessionLimits } from "../../actors/api/agent/sessions.ts";
import type { FinishReason } from "../../engines/generation.ts";
import { builtInKind, type ProgressEvent } from "../shared/agent/progress-event.ts";
import type { Sources } from "../shared/agent/web-results.ts";
import { agentAnswerFields, agentFieldsOf } from "../shared/agent/wire.ts";
import type { Answer, AnswerChoice, AnswerPart } from "../shared/answer/answer.ts";
import { containerPrefix } from "../shared/fields/tools/tool-fields.ts";
import { readCutObject } from "./cut-object.ts";
import { resultBlock, serverBlockSchemas, useBlock } from "./server-blocks.ts";
import { citationSchema, citationsOf } from "./web-blocks.ts";

/** Fields that occur both in the body and in the first stream event of a message. */
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
  z.strictObject({
    type: z.literal("text"),
    text: z.string(),
    citations: z
      .array(citationSchema)
      .readonly()
      .optional()
      .meta({ description: "Pages of web searches that the text names; absent if there are none." }),
  }),
  z.strictObject({
    type: z.literal("tool_use"),
    id: z.string(),
    name: z.string(),
    input: z.unknown(),
    caller: z.strictObject({ type: z.literal("direct") }),
  }),
  ...serverBlockSchemas,
]);

const tokenCount = z.int().min(0);

const usageSchema = z.strictObject({
  input_tokens: tokenCount.meta({ description: "Prompt tokens computed in prefill." }),
  cache_read_input_tokens: tokenCount.meta({ description: "Prompt tokens read from the prefix cache." }),
  cache_creation_input_tokens: tokenCount.meta({ description: "Always 0: cache writes are not counted separately." }),
  output_tokens: tokenCount,
  output_tokens_details: z.strictObject({ thinking_tokens: tokenCount }),
  server_tool_use: z
    .strictObject({ web_search_requests: tokenCount, web_fetch_requests: tokenCount })
    .nullable()
    .meta({ description: "Numbers of calls of the web tools; null: there are none." }),
});

const stopSchema = {
  stop_reason: z.enum(["end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal"]).nullable(),
  stop_sequence: z.string().nullable(),
  stop_details: z
    .strictObject({ type: z.literal("refusal"), category: z.null(), explanation: z.string() })
    .nullable()
    .meta({
      description: "The reason for a refusal: why the output does not meet the request's demands; null otherwise.",
    }),
} as const;

const container = z
  .strictObject({ id: z.string(), expires_at: z.string(), skills: z.null() })
  .nullable()
  .meta({ description: "Container of the server's tools: the session of the request. null: the request has none." });

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
  ...agentAnswerFields,
});

export const messageDeltaSchema = z.strictObject({
  type: z.literal("message_delta"),
  delta: z.strictObject({ ...stopSchema, container }),
  usage: usageSchema,
  session_id: agentAnswerFields.session_id,
});

type ContentBlock = z.output<typeof contentBlockSchema>;
type Stop = z.output<z.ZodObject<typeof stopSchema>>;
type Usage = z.output<typeof usageSchema>;

/** Token counts of a message, as known so far. */
export interface TokenCounts {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly reasoningTokens: number;
}

/** Counters of the completed calls of each web tool. */
export class WebCalls {
  #search = 0;
  #page = 0;

  take(event: ProgressEvent): void {
    if (event.phase !== "complete") return;
    const kind = builtInKind(event);
    if (kind === "search") this.#search++;
    else if (kind === "page") this.#page++;
  }

  get usage(): Usage["server_tool_use"] {
    if (this.#search + this.#page === 0) return null;
    return { web_search_requests: this.#search, web_fetch_requests: this.#page };
  }
}

/** How a generation ended: finish reason, stop string, refusal, and whether the tool round limit was reached. */
export type Ending = Pick<AnswerChoice, "finishReason" | "stopString" | "refusal"> & {
  /** Whether the run reached its limit of tool rounds. */
  readonly isLimited: boolean;
};

/** Builds the response body of a generation with one choice. */
export function wholeMessage(head: MessageHead, { choices, usage, run, sources }: Answer, isPlain: boolean): object {
  const [choice] = choices;
  assert(choice);
  const session = run?.sessionId ?? null;
  const calls = new WebCalls();
  for (const part of choice.parts) if (part.kind === "server_call") calls.take(part.progress);
  const { finishReason, stopString, refusal } = choice;
  const stop = wireStop({ finishReason, stopString, refusal, isLimited: run?.isLimited ?? false });
  const content = choice.parts.flatMap((part) => contentBlocks(part, { sources, session, isPlain }));
  const whole = message(head, content, stop, { ...usage, serverToolUse: calls.usage }, session);
  return { ...whole, ...agentFieldsOf(run) };
}

interface BlockContext {
  readonly sources: Sources;
  readonly session: string | null;
  /**
   * Whether the request asks for no agent loop feature. If true, blocks of server tools are omitted, because the client may not
   * know these block types.
   */
  readonly isPlain: boolean;
}

function contentBlocks(part: AnswerPart, { sources, session, isPlain }: BlockContext): readonly ContentBlock[] {
  if (part.kind !== "server_call") return [contentBlock(part, sources)];
  if (isPlain) return [];
  return [useBlock(part.progress), resultBlock(part.progress, session ?? "")].filter((block) => block !== null);
}

function contentBlock(part: Exclude<AnswerPart, { readonly kind: "server_call" }>, sources: Sources): ContentBlock {
  const { kind, text } = part;
  if (kind === "call") {
    const input: unknown = part.isCut ? readCutObject(text) : JSON.parse(text);
    return { type: "tool_use", id: part.id, name: part.name, input, caller: { type: "direct" } };
  }
  if (kind === "reasoning") return { type: "thinking", thinking: text, signature: "" };
  const citations = citationsOf(sources, text);
  return { type: "text", text, ...(citations.length === 0 ? {} : { citations }) };
}

/** Returns the field `container` for a session; null if the request has no session. */
export function wireContainer(session: string | null): z.output<typeof container> {
  if (session === null) return null;
  return {
    id: containerPrefix + session,
    expires_at: new Date(Date.now() + sessionLimits.idleMs).toISOString(),
    skills: null,
  };
}

export function message(
  head: MessageHead,
  content: readonly ContentBlock[],
  stop: Stop,
  counts: UsageCounts,
  session: string | null,
): object {
  return {
    id: head.id,
    type: "message",
    role: "assistant",
    model: head.model,
    content,
    ...stop,
    container: wireContainer(session),
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

interface UsageCounts extends TokenCounts {
  readonly serverToolUse: Usage["server_tool_use"];
}

export function wireUsage(counts: UsageCounts): Usage {
  const { promptTokens, cachedTokens, completionTokens, reasoningTokens, serverToolUse } = counts;
  return {
    input_tokens: promptTokens - cachedTokens,
    cache_read_input_tokens: cachedTokens,
    cache_creation_input_tokens: 0,
    output_tokens: completionTokens,
    output_tokens_details: { thinking_tokens: reasoningTokens },
    server_tool_use: serverToolUse,
  };
}

/** Stop fields of a message that is still being generated. */
export const notStopped: Stop = { stop_reason: null, stop_sequence: null, stop_details: null };

export function wireStop({ finishReason, stopString, refusal, isLimited }: Ending): Stop {
  if (refusal !== null) {
    const stop_details = { type: "refusal", category: null, explanation: refusal } as const;
    return { stop_reason: "refusal", stop_sequence: null, stop_details };
  }
  if (isLimited) return { ...notStopped, stop_reason: "pause_turn" };
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
