// Usage: the `usage` object of the OpenAI-like protocols, with token counts and the timing fields of the API contract.
import { z } from "zod";
import type { FinishReason, Usage } from "../../../engines/generation.ts";

const tokens = z.int().min(0);
const rateSchema = z.number().min(0).meta({ description: "Tokens per second." });
const seconds = z.number().min(0).meta({ description: "Seconds." });

export const usageSchema = z
  .strictObject({
    prompt_tokens: tokens,
    completion_tokens: tokens,
    total_tokens: tokens,
    prompt_tokens_details: z.strictObject({
      cached_tokens: tokens.meta({ description: "Prompt tokens read from the prefix cache." }),
    }),
    completion_tokens_details: z.strictObject({
      reasoning_tokens: tokens.meta({ description: "Tokens of reasoning." }),
    }),
    avg_tok_per_sec: rateSchema,
    avg_prompt_tok_per_sec: rateSchema,
    avg_compl_tok_per_sec: rateSchema,
    total_time_sec: seconds,
    total_prompt_time_sec: seconds,
    total_completion_time_sec: seconds,
  })
  .meta({ id: "CompletionUsage" });

export type WireUsage = z.output<typeof usageSchema>;

export function wireUsage(usage: Usage): WireUsage {
  const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = usage;
  const { promptSeconds, completionSeconds, totalSeconds } = usage;
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens },
    completion_tokens_details: { reasoning_tokens: reasoningTokens },
    avg_tok_per_sec: rate(promptTokens + completionTokens, totalSeconds),
    avg_prompt_tok_per_sec: rate(promptTokens, promptSeconds),
    avg_compl_tok_per_sec: rate(completionTokens, completionSeconds),
    total_time_sec: totalSeconds,
    total_prompt_time_sec: promptSeconds,
    total_completion_time_sec: completionSeconds,
  };
}

// Tokens per second. If a coarse clock measured 0 seconds, the rate is 0, because JSON has no Infinity.
function rate(count: number, seconds: number): number {
  return seconds > 0 ? count / seconds : 0;
}

export const finishReasonSchema = z.enum(["stop", "length", "tool_calls", "canceled"]);

/** Returns the finish reason in the spelling of the API contract, which differs only for "cancelled". */
export function wireFinishReason(reason: FinishReason): z.output<typeof finishReasonSchema> {
  return reason === "cancelled" ? "canceled" : reason;
}
