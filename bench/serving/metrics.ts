// Metrics of one round: rates, latencies and failures, computed from the outcomes of its requests.
import type { LoopDelay } from "../loop-delay.ts";
import type { LoadResult, Outcome } from "./client/load.ts";
import { mean, type Percentiles, percentiles } from "./client/statistics.ts";

export interface RoundMetrics {
  readonly requests: number;
  readonly wallMs: number;
  readonly outputTokensPerSecond: number;
  readonly requestsPerSecond: number;
  readonly firstTokenMs: Percentiles;
  /** Time from the first to the last text of a request, divided by the number of its tokens minus one. */
  readonly perTokenMs: Percentiles;
  /** Pauses between texts, regardless of the number of tokens in each text. */
  readonly gapMs: Percentiles;
  readonly latencyMs: Percentiles;
  readonly meanPromptTokens: number;
  readonly meanCachedTokens: number;
  readonly meanOutputTokens: number;
  /** Number of failed requests by kind of failure. */
  readonly errors: Readonly<Record<string, number>>;
  /** Maximum resident memory of all server processes together. This and the following fields are null if not measured. */
  readonly peakMiB: number | null;
  /** Delay of the event loop of troupe's main thread. */
  readonly frontDelayMs: LoopDelay | null;
  /** Output tokens/s of the server divided by the output tokens/s of llama-batched-bench. */
  readonly overBound: number | null;
}

/** Metrics of the server that do not come from its responses. */
export type ServerMetrics = Pick<RoundMetrics, "peakMiB" | "frontDelayMs">;

/** Request that got a response. */
type Answered = Outcome & { readonly usage: NonNullable<Outcome["usage"]> };

export function roundMetrics(load: LoadResult, server: ServerMetrics): RoundMetrics {
  const good = load.outcomes.filter((outcome): outcome is Answered => outcome.error === null && outcome.usage !== null);
  const outputTokens = good.reduce((sum, { usage }) => sum + usage.completion_tokens, 0);
  const seconds = load.wallMs / 1000;
  const streamed = good.filter(({ firstTextMs }) => !Number.isNaN(firstTextMs));
  const long = streamed.filter(({ usage }) => usage.completion_tokens > 1);
  return {
    requests: load.outcomes.length,
    wallMs: load.wallMs,
    outputTokensPerSecond: outputTokens / seconds,
    requestsPerSecond: good.length / seconds,
    firstTokenMs: percentiles(streamed.map(({ startMs, firstTextMs }) => firstTextMs - startMs)),
    perTokenMs: percentiles(long.map((one) => (one.lastTextMs - one.firstTextMs) / (one.usage.completion_tokens - 1))),
    gapMs: percentiles(load.gapsMs),
    latencyMs: percentiles(good.map(({ startMs, endMs }) => endMs - startMs)),
    meanPromptTokens: mean(good.map(({ usage }) => usage.prompt_tokens)),
    meanCachedTokens: mean(good.map(({ usage }) => usage.prompt_tokens_details?.cached_tokens ?? 0)),
    meanOutputTokens: mean(good.map(({ usage }) => usage.completion_tokens)),
    errors: countErrors(load.outcomes),
    ...server,
    overBound: null,
  };
}

function countErrors(outcomes: readonly Outcome[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { error } of outcomes) if (error !== null) counts[error] = (counts[error] ?? 0) + 1;
  return counts;
}
