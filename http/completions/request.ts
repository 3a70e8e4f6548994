// Request of POST /v1/completions: its schema and its translation to a GenerateRequest. The endpoint accepts one prompt as a
// string and does not stream.
import { z } from "zod";
import { expected } from "../issues.ts";
import { addConflicts, type Conflict } from "../shared/fields/conflicts.ts";
import {
  commonFields,
  isEmptyArray,
  MAX_CHOICES,
  notBuiltYet,
  refused,
  samplingConflicts,
  samplingOf,
  stopStrings,
} from "../shared/fields/fields.ts";
import { grammarConflicts, outputGrammar } from "../shared/fields/grammar-fields.ts";
import { limitConflicts, outputLimit } from "../shared/fields/output-limit.ts";
import type { AskedRequest } from "../shared/translation.ts";

const limitNames = ["max_tokens", "max_completion_tokens", "n_predict"] as const;

const NO_STREAM = "this endpoint does not stream; use POST /v1/chat/completions";
const NO_TOOLS = "this endpoint has no tool calls; use POST /v1/chat/completions";

export const completionRequestSchema = z
  .strictObject({
    prompt: z
      .string({ error: expected("a string (one prompt a request; arrays are not taken)") })
      .meta({ description: "Text to continue; no chat template is applied." }),
    ...commonFields,
    stream: refused(NO_STREAM, (value) => value === false),
    stream_options: refused(NO_STREAM),
    echo: z
      .boolean()
      .nullish()
      .meta({ description: "Start the text and its logprobs with the prompt.", default: false }),
    logprobs: z
      .int()
      .min(0)
      .max(5)
      .nullish()
      .meta({ description: "Return log probabilities with this number of alternatives per token." }),
    best_of: z
      .int()
      .min(1)
      .max(MAX_CHOICES)
      .nullish()
      .meta({ description: "Number of completions to generate; the n most likely are returned. Default: n." }),
    suffix: notBuiltYet("filling in before a suffix", (value) => value === ""),
    tools: refused(NO_TOOLS, isEmptyArray),
    tool_choice: refused(NO_TOOLS, (value) => value === "none" || value === "auto"),
  })
  .superRefine((body, context) => addConflicts(context, conflicts(body)));

export type CompletionRequestBody = z.output<typeof completionRequestSchema>;

/** Converts a request body to the request that all protocols share. */
export function askedRequest(body: CompletionRequestBody): AskedRequest {
  return {
    prompt: { kind: "text", text: body.prompt },
    sampling: samplingOf(body, body.logprobs ?? null),
    choices: body.n ?? 1,
    candidates: body.best_of ?? body.n ?? 1,
    priority: body.priority ?? 0,
    grammar: outputGrammar(body),
    tools: null,
    promptLogprobs: body.echo ? (body.logprobs ?? null) : null,
    reasoningBudget: null,
    stop: stopStrings(body.stop),
    ignoreEos: body.ignore_eos ?? false,
    truncatePrompt: body.truncate_sequence ?? false,
    ...outputLimit(body, "prompt", limitNames),
  };
}

type Conflicting = Omit<CompletionRequestBody, "prompt">;

function* conflicts(body: Conflicting): Iterable<Conflict> {
  yield* grammarConflicts(body);
  yield* limitConflicts(body, limitNames);
  yield* samplingConflicts(body);
  const choices = body.n ?? 1;
  if ((body.best_of ?? choices) < choices) {
    yield ["best_of", `expected at least n (${choices}), got ${body.best_of}`];
  }
}
