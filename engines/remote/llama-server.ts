// Dialect of llama-server (llama.cpp): POST /completion, with the prompt as token ids.
import { ServerError } from "../../runtime/errors.ts";
import { count, errorText, finite, garbage, type JsonRecord, list, record, tokenId } from "./json-shape.ts";
import type { SplitCharacters } from "./split-characters.ts";
import {
  type Dialect,
  type EventReader,
  type UpstreamEvent,
  UpstreamFailure,
  type UpstreamLogprobs,
  type UpstreamRequest,
} from "./upstream.ts";

/** Order in which llama-server must apply the samplers: the same as in engines/decoding/sampler. */
const samplers = ["penalties", "dry", "temperature", "top_k", "top_p", "min_p"];
/**
 * Fields requested for the last event. Without this list, llama-server would repeat the prompt and all settings in it.
 */
const lastFields = ["stop", "tokens_predicted", "stop_type"];

export function llamaServer(splits: SplitCharacters): Dialect {
  return {
    name: "llama-server",
    grammar: "gbnf",
    path: "/completion",
    body,
    reader: ({ sampling }) => new LlamaReader(splits, sampling.topLogprobs),
    tokenizeBody: (_model, content) => JSON.stringify({ content, add_special: false, parse_special: false }),
  };
}

function body({ model, prompt, maxTokens, minTokens, ignoreEos, sampling, seed, grammar }: UpstreamRequest): string {
  if (minTokens > 0) {
    const message = "min_tokens: the model runs on llama-server, which has no minimum; remove it";
    throw new ServerError("unsupported", message, { param: "min_tokens" });
  }
  const { temperature, topK, topP, minP, presencePenalty, frequencyPenalty, repetitionPenalty } = sampling;
  const { dry, logitBias, topLogprobs } = sampling;
  // Penalties apply to the whole sequence, so its maximum length is sent. The value -1 (all tokens) is rejected by
  // newer versions of llama-server.
  const allTokens = prompt.length + maxTokens;
  return JSON.stringify({
    model,
    prompt,
    stream: true,
    return_tokens: true,
    // Requests events, before the first token, with the number of prompt tokens found in the cache.
    return_progress: true,
    n_predict: maxTokens,
    response_fields: lastFields,
    samplers,
    temperature,
    top_k: topK,
    top_p: topP,
    min_p: minP,
    presence_penalty: presencePenalty,
    frequency_penalty: frequencyPenalty,
    repeat_penalty: repetitionPenalty,
    repeat_last_n: allTokens,
    ignore_eos: ignoreEos,
    ...(dry !== null && {
      dry_multiplier: dry.multiplier,
      dry_base: dry.base,
      dry_allowed_length: dry.allowedLength,
      dry_sequence_breakers: dry.sequenceBreakers,
      dry_penalty_last_n: allTokens,
    }),
    ...(logitBias.length > 0 && { logit_bias: logitBias }),
    ...(seed !== null && { seed: seed >>> 0 }),
    // llama-server sends the logprob of the chosen token only if at least one alternative is requested.
    ...(topLogprobs !== null && { n_probs: Math.max(topLogprobs, 1) }),
    ...(grammar !== null && { grammar }),
  });
}

class LlamaReader implements EventReader {
  readonly #splits: SplitCharacters;
  readonly #topLogprobs: number | null;
  #seen = 0;

  constructor(splits: SplitCharacters, topLogprobs: number | null) {
    this.#splits = splits;
    this.#topLogprobs = topLogprobs;
  }

  read(sent: unknown): UpstreamEvent {
    const event = record(sent, "an event");
    if (event.error !== undefined) throw new UpstreamFailure("failed", errorText(event));
    if (event.stop_type !== undefined && event.stop !== false) return endOf(event);
    const progress = event.prompt_progress;
    if (progress !== undefined) return { ...nothing, cachedTokens: count(record(progress, "progress").cache) };
    const own = list(event.tokens, "tokens").map(tokenId);
    const missing = Number(event.tokens_predicted) - this.#seen - own.length;
    const tokens = missing > 0 ? [...this.#missing(event, own, missing), ...own] : own;
    this.#seen += tokens.length;
    return { tokens, logprobs: this.#logprobs(event, tokens.length), end: null, cachedTokens: null };
  }

  #missing({ content }: JsonRecord, own: readonly number[], count: number): readonly number[] {
    const found = own.length === 1 ? this.#splits.find(String(content), own[0] as number, count) : null;
    if (found === null) throw garbage(`the bytes of ${count + own.length} tokens`, content);
    return found;
  }

  /**
   * Returns the logprobs of an event's tokens. For tokens that llama-server left out of its events, the logprob is
   * unknown and counts as 0 (certain).
   */
  #logprobs({ completion_probabilities: sent }: JsonRecord, tokens: number): readonly UpstreamLogprobs[] | null {
    const top = this.#topLogprobs;
    if (top === null) return null;
    const own = list(sent ?? [], "completion_probabilities").map((entry): UpstreamLogprobs => {
      const { logprob, top_logprobs } = record(entry, "a probability");
      const likeliest = list(top_logprobs ?? [], "top_logprobs").slice(0, top);
      return {
        chosen: finite(logprob, "logprob"),
        top: likeliest.map((pair) => {
          const { id, logprob } = record(pair, "a probability");
          return [tokenId(id), finite(logprob, "logprob")] as const;
        }),
      };
    });
    const leftOut = Array.from({ length: tokens - own.length }, () => ({ chosen: 0, top: [] }));
    return [...leftOut, ...own];
  }
}

const nothing: UpstreamEvent = { tokens: [], logprobs: null, end: null, cachedTokens: null };

function endOf(event: JsonRecord): UpstreamEvent {
  return { ...nothing, end: event.stop_type === "limit" ? "length" : "stop" };
}
