// Request fields that only chat completions and responses share. fields.ts has the fields of all text protocols.
import { z } from "zod";
import { ignored, isEmptyArray, notBuiltYet } from "./fields.ts";

const CACHED_ANYWAY = "the prefix cache is automatic";

export const verbosityField = ignored(
  z.enum(["low", "medium", "high"]),
  "models have no such setting; ask for it in a message",
);

export const openAiFields = {
  top_logprobs: z
    .int()
    .min(0)
    .max(20)
    .nullish()
    .meta({ description: "Number of most likely alternatives to report per token.", default: 0 }),
  reasoning_budget: z
    .int()
    .min(0)
    .nullish()
    .meta({ description: "Maximum number of reasoning tokens. An extension of the contract." }),
  max_tool_rounds: notBuiltYet("a limit of tool rounds"),
  files: notBuiltYet("asking for files", isEmptyArray),
  moderation: notBuiltYet("moderation"),
  service_tier: ignored(z.string(), "there is one tier; use priority"),
  safety_identifier: ignored(z.string(), "requests are scheduled fairly by API key or client address"),
  prompt_cache_key: ignored(z.string(), CACHED_ANYWAY),
  prompt_cache_retention: ignored(z.string(), CACHED_ANYWAY),
  prompt_cache_options: ignored(z.record(z.string(), z.unknown()), CACHED_ANYWAY),
} as const;

/** Field of a content part that requests prompt caching; ignored. */
export const cacheHint = ignored(z.unknown(), CACHED_ANYWAY);
