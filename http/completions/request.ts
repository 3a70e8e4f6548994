// Owns the request of POST /v1/completions: its schema, and what it means as a GenerateRequest. This endpoint takes one
// prompt as a string and does not stream.
import { z } from "zod";
import type { GenerateRequest } from "../../engines/chat.ts";
import { commonFields, fieldIssue, MAX_CHOICES, notBuiltYet, samplingOf, stopStrings } from "../fields.ts";
import { grammarConflicts, outputGrammar } from "../grammar-fields.ts";
import { expected } from "../issues.ts";

export const completionRequestSchema = z
  .strictObject({
    ...commonFields,
    prompt: z.string({ error: expected("a string (one prompt a request; arrays are not taken)") }),
    stream: z.literal(false, { error: "this endpoint does not stream; use POST /v1/chat/completions" }).nullish(),
    echo: z.boolean().nullish(),
    logprobs: z.int().min(0).max(5).nullish(),
    best_of: z.int().min(1).max(MAX_CHOICES).nullish(),
    suffix: notBuiltYet("filling in before a suffix", (value) => value === ""),
  })
  .superRefine((body, context) => {
    for (const [field, message] of grammarConflicts(body)) context.addIssue(fieldIssue(field, message));
    const choices = body.n ?? 1;
    if ((body.best_of ?? choices) < choices) {
      context.addIssue(fieldIssue("best_of", `expected at least n (${choices}), got ${body.best_of}`));
    }
  });

export type CompletionRequestBody = z.output<typeof completionRequestSchema>;

/** The neutral request a body asks for, of the model it resolved to, for a client. */
export function toGenerateRequest(body: CompletionRequestBody, model: string, client: string): GenerateRequest {
  return {
    model,
    client,
    prompt: { kind: "text", text: body.prompt },
    sampling: samplingOf(body, body.logprobs ?? null),
    choices: body.n ?? 1,
    candidates: body.best_of ?? body.n ?? 1,
    priority: body.priority ?? 0,
    grammar: outputGrammar(body),
    promptLogprobs: body.echo ? (body.logprobs ?? null) : null,
    reasoningBudget: null,
    stop: stopStrings(body.stop),
    maxTokens: body.max_tokens ?? null,
    ignoreEos: body.ignore_eos ?? false,
    truncatePrompt: body.truncate_sequence ?? false,
  };
}
