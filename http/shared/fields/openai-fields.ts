// Owns the request fields that OpenAI's two protocols of conversations have in common, chat completions and responses, beside
// those that every protocol has.
import { z } from "zod";
import { ignored, isEmptyArray, notBuiltYet } from "./fields.ts";

const CACHED_ANYWAY = "the start of a prompt is cached wherever it is used again";

export const verbosityField = ignored(
  z.enum(["low", "medium", "high"]),
  "no model here has such a setting; say it in a message",
);

export const openAiFields = {
  top_logprobs: z.int().min(0).max(20).nullish().meta({ description: "Likeliest tokens to report beside each; 0" }),
  reasoning_budget: z
    .int()
    .min(0)
    .nullish()
    .meta({ description: "Most tokens of thinking; what follows is the answer. Not of the contract" }),
  max_tool_rounds: notBuiltYet("a limit of tool rounds"),
  files: notBuiltYet("asking for files", isEmptyArray),
  moderation: notBuiltYet("moderation"),
  service_tier: ignored(z.string(), "there is one tier; a request is put before others by priority"),
  safety_identifier: ignored(z.string(), "clients take turns by their API key or address"),
  prompt_cache_key: ignored(z.string(), CACHED_ANYWAY),
  prompt_cache_retention: ignored(z.string(), CACHED_ANYWAY),
  prompt_cache_options: ignored(z.record(z.string(), z.unknown()), CACHED_ANYWAY),
} as const;

/** Of a content part. */
export const cacheHint = ignored(z.unknown(), CACHED_ANYWAY);
