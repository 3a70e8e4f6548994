// Stream latency: histograms of the time to the first token and between tokens, one pair per series, counted where tokens
// are made. Observing allocates nothing; times are handed in.
import type { LatencyCounts } from "../api/engine-metric.ts";
import type { SeriesLatencies } from "../messages.ts";

/** Upper bounds of the buckets, in seconds. */
export const firstTokenBounds = [
  0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 20, 40, 80, 160, 320,
] as const;
export const interTokenBounds = [
  0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5, 5, 10,
] as const;

/** Series are named after routes, so there are few; further ones share one. */
const maxSeries = 32;
const otherSeries = "<other>";

// In place of the time of the last tokens.
const notBegun = -1;
const paused = -2;

export class StreamLatencies {
  readonly #series = new Map<string, Series>();

  /** The clock of one stream, whose request came `waitedMs` before now. */
  open(name: string, waitedMs: number, nowMs: number): StreamClock {
    // The clocks of two processes may differ.
    return new StreamClock(this.#seriesOf(name), nowMs - Math.max(waitedMs, 0));
  }

  snapshot(): SeriesLatencies[] {
    return [...this.#series].map(([series, { firstToken, interToken }]) => {
      return { series, firstToken: firstToken.snapshot(), interToken: interToken.snapshot() };
    });
  }

  #seriesOf(name: string): Series {
    const known = this.#series.get(name);
    if (known !== undefined) return known;
    if (this.#series.size >= maxSeries && name !== otherSeries) return this.#seriesOf(otherSeries);
    const made = { firstToken: new Histogram(firstTokenBounds), interToken: new Histogram(interTokenBounds) };
    this.#series.set(name, made);
    return made;
  }
}

interface Series {
  readonly firstToken: Histogram;
  readonly interToken: Histogram;
}

/** Latencies of one stream. */
export class StreamClock {
  readonly #series: Series;
  readonly #receivedMs: number;
  /** When its last tokens came. */
  #lastMs = notBegun;

  constructor(series: Series, receivedMs: number) {
    this.#series = series;
    this.#receivedMs = receivedMs;
  }

  /** Counts `count` tokens of a step; they share the time since the tokens before. */
  took(count: number, nowMs: number): void {
    const { firstToken, interToken } = this.#series;
    if (this.#lastMs === notBegun) firstToken.add((nowMs - this.#receivedMs) / 1000, 1);
    else if (this.#lastMs !== paused) interToken.add((nowMs - this.#lastMs) / 1000 / count, count);
    this.#lastMs = nowMs;
  }

  /** The reader is behind: the time until the next tokens is its own and is not counted. */
  pause(): void {
    if (this.#lastMs !== notBegun) this.#lastMs = paused;
  }
}

/** Counts observations by bucket. */
class Histogram {
  readonly #bounds: readonly number[];
  readonly #counts: Float64Array;
  #sumSeconds = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.#counts = new Float64Array(bounds.length + 1);
  }

  add(seconds: number, count: number): void {
    let bucket = 0;
    while (bucket < this.#bounds.length && seconds > (this.#bounds[bucket] as number)) bucket++;
    this.#counts[bucket] = (this.#counts[bucket] as number) + count;
    this.#sumSeconds += seconds * count;
  }

  snapshot(): LatencyCounts {
    return { counts: [...this.#counts], sumSeconds: this.#sumSeconds };
  }
}
