// Response schema of text completions, used by the API document and by the types of response.ts.
import { z } from "zod";
import { adapterGeneration } from "../shared/answer/adapter-generation.ts";
import { finishReasonSchema, usageSchema } from "../shared/answer/usage.ts";

const legacyLogprobs = z.strictObject({
  tokens: z
    .array(z.string())
    .meta({ description: "Text of each token; `bytes:\\xc3` names the bytes of a token that is not valid UTF-8." }),
  token_logprobs: z
    .array(z.number().nullable())
    .meta({ description: "-9999 if the probability is 0; null for the first token of an echoed prompt." }),
  top_logprobs: z.array(z.record(z.string(), z.number()).nullable()),
  text_offset: z.array(z.int().min(0)).meta({ description: "Offset of each token in the text, in code points." }),
});

const choice = z.strictObject({
  text: z.string(),
  index: z.int().min(0),
  logprobs: legacyLogprobs.nullable(),
  token_ids: z.array(z.int()).optional().meta({ description: "Ids of the tokens of the text, with return_token_ids." }),
  finish_reason: finishReasonSchema,
  refusal: z.string().optional().meta({ description: "Why the text does not match the grammar." }),
});

export const textCompletionSchema = z
  .strictObject({
    id: z.string(),
    object: z.literal("text_completion"),
    created: z.int().meta({ description: "Unix time in seconds." }),
    model: z.string(),
    system_fingerprint: z.literal("local"),
    choices: z.array(choice).min(1),
    usage: usageSchema,
    adapter_generation: adapterGeneration,
  })
  .meta({ id: "TextCompletion" });

/** Chunk of a stream. Each chunk has only new text; the last chunk of the stream has the usage. */
export const completionChunkSchema = textCompletionSchema
  .extend({
    choices: z.array(choice.extend({ finish_reason: finishReasonSchema.nullable() })),
    usage: usageSchema.nullish(),
  })
  .meta({ id: "TextCompletionChunk" });

export type WireCompletion = z.output<typeof textCompletionSchema>;
export type WireCompletionChoice = z.output<typeof choice>;
export type WireLegacyLogprobs = z.output<typeof legacyLogprobs>;
