// Owns the `usage` object of the OpenAI-like protocols: token counts, and the contract's timing fields.
import type { FinishReason, Usage } from "../engines/chat.ts";

export interface WireUsage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
  readonly prompt_tokens_details: { readonly cached_tokens: number };
  readonly avg_tok_per_sec: number;
  readonly avg_prompt_tok_per_sec: number;
  readonly avg_compl_tok_per_sec: number;
  readonly total_time_sec: number;
  readonly total_prompt_time_sec: number;
  readonly total_completion_time_sec: number;
}

export function wireUsage(usage: Usage): WireUsage {
  const { promptTokens, cachedTokens, completionTokens, promptSeconds, completionSeconds, totalSeconds } = usage;
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens },
    avg_tok_per_sec: rate(promptTokens + completionTokens, totalSeconds),
    avg_prompt_tok_per_sec: rate(promptTokens, promptSeconds),
    avg_compl_tok_per_sec: rate(completionTokens, completionSeconds),
    total_time_sec: totalSeconds,
    total_prompt_time_sec: promptSeconds,
    total_completion_time_sec: completionSeconds,
  };
}

// A time of 0 (a clock too coarse for it) gives no rate; Infinity would not survive JSON.
function rate(count: number, seconds: number): number {
  return seconds > 0 ? count / seconds : 0;
}

/** The contract spells one reason otherwise than we do. */
export function wireFinishReason(reason: FinishReason): "stop" | "length" | "canceled" {
  return reason === "cancelled" ? "canceled" : reason;
}

/** A log probability as JSON can carry it: OpenAI writes -9999 for "never". */
export function wireLogprob(logprob: number): number {
  return Number.isFinite(logprob) ? logprob : -9999;
}
