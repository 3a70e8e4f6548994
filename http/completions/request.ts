// Request of POST /v1/completions: its schema and its translation to GenerateRequests, one for each prompt.
import { z } from "zod";
import type { Prompt } from "../../engines/generation.ts";
import { expected } from "../issues.ts";
import { addConflicts, type Conflict } from "../shared/fields/conflicts.ts";
import {
  commonFields,
  ignored,
  isEmptyArray,
  limitFields,
  MAX_CHOICES,
  refused,
  samplingConflicts,
  samplingOf,
  stopStrings,
  streamField,
} from "../shared/fields/fields.ts";
import { grammarConflicts, outputGrammar } from "../shared/fields/grammar-fields.ts";
import { limitConflicts, outputLimit } from "../shared/fields/output-limit.ts";
import type { AskedRequest } from "../shared/translation.ts";

const limitNames = ["max_tokens", "max_completion_tokens", "n_predict"] as const;

/** Maximum number of prompts in one request. */
export const MAX_PROMPTS = 128;
/** Maximum number of choices of one request, over all its prompts. */
const MAX_ALL_CHOICES = 512;
const NO_TOOLS = "this endpoint has no tool calls; use POST /v1/chat/completions";

// No maximum, because the text worker checks that the token is in the vocabulary.
const token = z.int32().min(0);
const entry = z.union([token, z.string(), z.array(token).min(1)], {
  error: expected("a string, a token or an array of tokens"),
});

const prompt = z
  .union([z.string(), z.array(entry).min(1)], {
    error: expected("a string, an array of strings, an array of tokens or an array of such arrays"),
  })
  .superRefine((value, context) => {
    if (typeof value === "string") return;
    const kind = typeof value[0];
    if (value.some((some) => typeof some !== kind)) {
      context.addIssue({ code: "custom", message: "expected strings, tokens or arrays of tokens, got some of each" });
    } else if (kind !== "number" && value.length > MAX_PROMPTS) {
      const message = `expected at most ${MAX_PROMPTS} prompts, got ${value.length}; send several requests`;
      context.addIssue({ code: "custom", message });
    }
  });

export const completionRequestSchema = z
  .strictObject({
    prompt: prompt.meta({
      description:
        "Text to continue, tokens to continue, or a list of texts or token lists, each with its own choices; no chat template is applied.",
    }),
    ...commonFields,
    ...limitFields(0),
    stream: streamField.meta({
      description: "Stream the response as server-sent events, if the setting allow_completions_stream is set.",
      default: false,
    }),
    stream_options: z
      .strictObject({
        include_usage: z.boolean().nullish().meta({
          description: "Send the usage in a separate last chunk without choices, instead of on the last chunk.",
          default: false,
        }),
        include_obfuscation: ignored(z.boolean(), "chunks are not padded"),
      })
      .nullish(),
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
    return_token_ids: z.boolean().nullish().meta({
      description: "Return the ids of the generated tokens, as vLLM does: `token_ids` of each choice.",
      default: false,
    }),
    return_tokens_as_token_ids: z.boolean().nullish().meta({
      description: "Name the tokens of logprobs `token_id:7` instead of by their text, as vLLM does.",
      default: false,
    }),
    best_of: z
      .int()
      .min(1)
      .max(MAX_CHOICES)
      .nullish()
      .meta({ description: "Number of completions to generate; the n most likely are returned. Default: n." }),
    suffix: z.string().nullish().meta({
      description: "Text after the gap that the output fills; needs a model with infill tokens and a prompt as text.",
    }),
    tools: refused(NO_TOOLS, isEmptyArray),
    tool_choice: refused(NO_TOOLS, (value) => value === "none" || value === "auto"),
  })
  .superRefine((body, context) => addConflicts(context, conflicts(body)));

export type CompletionRequestBody = z.output<typeof completionRequestSchema>;

/** Returns the prompts of a request in order. There is at least one. */
export function promptsOf({ prompt, suffix }: CompletionRequestBody): readonly [Prompt, ...Prompt[]] {
  const ofText = (text: string): Prompt => ({ kind: "text", text, ...(suffix ? { suffix } : {}) });
  const ofTokens = (tokens: readonly number[]): Prompt => ({ kind: "tokens", tokens: Int32Array.from(tokens) });
  if (typeof prompt === "string") return [ofText(prompt)];
  // The schema guarantees that all entries have the same type.
  if (typeof prompt[0] === "number") return [ofTokens(prompt as number[])];
  const prompts = prompt.map((one) => (typeof one === "string" ? ofText(one) : ofTokens(one as number[])));
  return prompts as [Prompt, ...Prompt[]];
}

/** Converts a request body to the request for its first prompt, in the format that all protocols share. */
export function askedRequest(body: CompletionRequestBody): AskedRequest {
  return {
    prompt: promptsOf(body)[0],
    // The engine reports token ids only together with logprobs.
    sampling: samplingOf(body, body.logprobs ?? (body.return_token_ids ? 0 : null)),
    choices: body.n ?? 1,
    candidates: body.best_of ?? body.n ?? 1,
    priority: body.priority ?? 0,
    grammar: outputGrammar(body),
    tools: null,
    promptLogprobs: body.echo ? (body.logprobs ?? null) : null,
    reasoningBudget: null,
    stop: stopStrings(body.stop),
    ignoreEos: body.ignore_eos ?? false,
    stopTokens: body.stop_token_ids ?? [],
    truncatePrompt: body.truncate_sequence ?? false,
    ...outputLimit(body, "prompt", limitNames),
  };
}

function* conflicts(body: CompletionRequestBody): Iterable<Conflict> {
  yield* grammarConflicts(body);
  yield* limitConflicts(body, limitNames);
  yield* samplingConflicts(body);
  const choices = body.n ?? 1;
  if ((body.best_of ?? choices) < choices) {
    yield ["best_of", `expected at least n (${choices}), got ${body.best_of}`];
  }
  if (body.stream === true && (body.best_of ?? choices) > choices) {
    yield ["best_of", `expected n (${choices}) in a stream, which cannot wait for the best of ${body.best_of}`];
  }
  const prompts = Array.isArray(body.prompt) && typeof body.prompt[0] !== "number" ? body.prompt.length : 1;
  const all = prompts * Math.max(choices, body.best_of ?? 1);
  if (prompts > 1 && all > MAX_ALL_CHOICES) {
    yield ["prompt", `expected at most ${MAX_ALL_CHOICES} completions in all, got ${all}; send several requests`];
  }
  if (prompts > 1 && body.stream === true && body.echo === true && typeof body.logprobs === "number") {
    yield [
      "logprobs",
      "cannot be combined with echo in a stream of several prompts; send one prompt, or stream: false",
    ];
  }
  if (body.suffix) yield* suffixConflicts(body);
}

function* suffixConflicts({ prompt, echo, truncate_sequence }: CompletionRequestBody): Iterable<Conflict> {
  const isText = typeof prompt === "string" || typeof prompt[0] === "string";
  if (!isText) yield ["suffix", "needs a prompt as text, not as tokens"];
  if (echo === true) yield ["suffix", "cannot be combined with echo; send one of them"];
  if (truncate_sequence === true) yield ["suffix", "cannot be combined with truncate_sequence; shorten the prompt"];
}
