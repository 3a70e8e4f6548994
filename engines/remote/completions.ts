// Dialect of vLLM's completions: POST /v1/completions, with the prompt as token ids and the field `return_token_ids`. troupe's own server
// supports this dialect too.
import { ServerError } from "../../runtime/errors.ts";
import type { GrammarNotation } from "../grammar-source.ts";
import { count, errorText, finite, garbage, list, record, tokenId } from "./json-shape.ts";
import {
  type Dialect,
  type EventReader,
  type UpstreamEvent,
  UpstreamFailure,
  type UpstreamLogprobs,
  type UpstreamRequest,
} from "./upstream.ts";

export interface CompletionsOptions {
  /** Notation of the field structured_outputs.grammar. */
  readonly grammar: GrammarNotation;
  /** Whether the upstream supports the DRY penalty. */
  readonly hasDry: boolean;
}

export function completions(options: CompletionsOptions): Dialect {
  return {
    name: "completions",
    grammar: options.grammar,
    path: "/v1/completions",
    body: (request) => body(request, options),
    reader: ({ sampling }) => new CompletionsReader(sampling.topLogprobs),
    tokenizeBody: (model, prompt) => JSON.stringify({ model, prompt, add_special_tokens: false, parse_special: false }),
  };
}

function body(request: UpstreamRequest, { hasDry }: CompletionsOptions): string {
  const { model, prompt, maxTokens, minTokens, ignoreEos, stopTokens, sampling, seed, grammar } = request;
  const { temperature, topK, topP, minP, presencePenalty, frequencyPenalty, repetitionPenalty } = sampling;
  const { dry, logitBias, topLogprobs } = sampling;
  if (dry !== null && !hasDry) {
    const message = "dry_multiplier: the server on which the model runs has no DRY penalty; remove it";
    throw new ServerError("unsupported", message, { param: "dry_multiplier" });
  }
  return JSON.stringify({
    model,
    prompt,
    stream: true,
    stream_options: { include_usage: true },
    return_token_ids: true,
    max_tokens: maxTokens,
    temperature,
    top_p: topP,
    presence_penalty: presencePenalty,
    frequency_penalty: frequencyPenalty,
    // Neutral values are sent too, because the upstream's defaults are unknown. For top_k, -1 means all tokens.
    top_k: topK > 0 ? topK : -1,
    min_p: minP,
    repetition_penalty: repetitionPenalty,
    ...(minTokens > 0 && { min_tokens: minTokens }),
    ...(ignoreEos && { ignore_eos: true }),
    ...(stopTokens.length > 0 && { stop_token_ids: stopTokens }),
    ...(dry !== null && {
      dry_multiplier: dry.multiplier,
      dry_base: dry.base,
      dry_allowed_length: dry.allowedLength,
      dry_sequence_breakers: dry.sequenceBreakers,
    }),
    ...(logitBias.length > 0 && { logit_bias: Object.fromEntries(logitBias) }),
    ...(seed !== null && { seed }),
    ...(topLogprobs !== null && { logprobs: topLogprobs, return_tokens_as_token_ids: true }),
    ...(grammar !== null && { structured_outputs: { grammar } }),
  });
}

class CompletionsReader implements EventReader {
  readonly #topLogprobs: number | null;

  constructor(topLogprobs: number | null) {
    this.#topLogprobs = topLogprobs;
  }

  read(sent: unknown): UpstreamEvent {
    const event = record(sent, "an event");
    if (event.error !== undefined && event.error !== null) throw new UpstreamFailure("failed", errorText(event));
    const usage = typeof event.usage === "object" && event.usage !== null ? record(event.usage, "usage") : {};
    const details = usage.prompt_tokens_details;
    const cachedTokens =
      typeof details === "object" && details !== null ? count(record(details, "").cached_tokens) : null;
    const [first] = list(event.choices, "choices");
    if (first === undefined) return { tokens: [], logprobs: null, end: null, cachedTokens };
    const choice = record(first, "a choice");
    const tokens = (choice.token_ids ?? null) === null ? [] : list(choice.token_ids, "token_ids").map(tokenId);
    const logprobs = this.#topLogprobs === null ? null : logprobsOf(choice.logprobs, tokens.length, this.#topLogprobs);
    const reason = choice.finish_reason ?? null;
    return { tokens, logprobs, end: reason === null ? null : reason === "length" ? "length" : "stop", cachedTokens };
  }
}

function logprobsOf(sent: unknown, tokens: number, most: number): readonly UpstreamLogprobs[] {
  if (tokens === 0) return [];
  const { token_logprobs, top_logprobs } = record(sent, "logprobs");
  const chosen = list(token_logprobs, "token_logprobs");
  const tops = list(top_logprobs ?? [], "top_logprobs");
  if (chosen.length !== tokens) throw garbage(`the logprobs of ${tokens} tokens`, chosen);
  return chosen.map((logprob, i) => ({
    chosen: finite(logprob, "logprob"),
    top: Object.entries(record(tops[i] ?? {}, "top_logprobs"))
      .map(([name, value]) => [idOf(name), finite(value, "logprob")] as const)
      .sort(([, a], [, b]) => b - a)
      .slice(0, most),
  }));
}

const tokenPrefix = "token_id:";

function idOf(name: string): number {
  if (!name.startsWith(tokenPrefix)) throw garbage(`a name such as ${tokenPrefix}7 (return_tokens_as_token_ids)`, name);
  return tokenId(Number(name.slice(tokenPrefix.length)));
}
