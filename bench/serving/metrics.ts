// Metrics of one round: rates, latencies and failures, from the outcomes of its requests.
import type { LoopDelay } from "../loop-delay.ts";
import type { LoadResult, Outcome } from "./client/load.ts";
import { mean, type Percentiles, percentiles } from "./client/statistics.ts";

export interface RoundMetrics {
  readonly requests: number;
  readonly wallMs: number;
  readonly outputTokensPerSecond: number;
  readonly requestsPerSecond: number;
  readonly firstTokenMs: Percentiles;
  /** A request's time from its first to its last text, a token. */
  readonly perTokenMs: Percentiles;
  /** Pauses between texts, whatever the number of tokens in each. */
  readonly gapMs: Percentiles;
  readonly latencyMs: Percentiles;
  readonly meanPromptTokens: number;
  readonly meanCachedTokens: number;
  readonly meanOutputTokens: number;
  /** How many requests failed in which way. */
  readonly errors: Readonly<Record<string, number>>;
  /** Resident, of all its processes together; null where it is not measured, as with all below. */
  readonly peakMiB: number | null;
  /** How late the turns of the front's event loop were. */
  readonly frontDelayMs: LoopDelay | null;
  /** Output tokens/s over the C++ bound's. */
  readonly overBound: number | null;
}

/** What is known of the server beside its answers. */
export type ServerMetrics = Pick<RoundMetrics, "peakMiB" | "frontDelayMs">;

/** A request that was answered. */
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
