// Owns the schema of a text completion: the API document shows it, response.ts is typed by it.
import { z } from "zod";
import { adapterGeneration } from "../shared/answer/adapter-generation.ts";
import { finishReasonSchema, usageSchema } from "../shared/answer/usage.ts";

const legacyLogprobs = z.strictObject({
  tokens: z.array(z.string()),
  token_logprobs: z
    .array(z.number().nullable())
    .meta({ description: "-9999 for never; null for the first token of an echoed prompt" }),
  top_logprobs: z.array(z.record(z.string(), z.number()).nullable()),
  text_offset: z.array(z.int().min(0)).meta({ description: "Where each token begins in the text, in characters" }),
});

const choice = z.strictObject({
  text: z.string(),
  index: z.int().min(0),
  logprobs: legacyLogprobs.nullable(),
  finish_reason: finishReasonSchema,
  refusal: z.string().optional().meta({ description: "Why the text is not what the grammar demanded" }),
});

export const textCompletionSchema = z
  .strictObject({
    id: z.string(),
    object: z.literal("text_completion"),
    created: z.int().meta({ description: "Unix seconds" }),
    model: z.string(),
    system_fingerprint: z.literal("local"),
    choices: z.array(choice).min(1),
    usage: usageSchema,
    adapter_generation: adapterGeneration,
  })
  .meta({ id: "TextCompletion" });

export type WireCompletion = z.output<typeof textCompletionSchema>;
export type WireCompletionChoice = z.output<typeof choice>;
export type WireLegacyLogprobs = z.output<typeof legacyLogprobs>;
