// Stream latency: histograms of the time to the first token and of the time between tokens, one pair per series. Latencies are
// measured where the tokens are generated. Recording a latency allocates nothing.
import type { LatencyCounts } from "../api/engine-metric.ts";
import type { SeriesLatencies } from "../messages.ts";

/** Upper bounds of the histogram buckets, in seconds. */
export const firstTokenBounds = [
  0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 20, 40, 80, 160, 320,
] as const;
export const interTokenBounds = [
  0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5, 5, 10,
] as const;

/** Maximum number of series. All further series are merged into one. Series are named after HTTP routes, so there are few. */
const maxSeries = 32;
const otherSeries = "<other>";

// Special values of #lastMs. Any other value is the time of the stream's latest tokens.
const notBegun = -1;
const paused = -2;

export class StreamLatencies {
  readonly #series = new Map<string, Series>();

  /** Starts the clock of one stream. Its request arrived `waitedMs` before now. */
  open(name: string, waitedMs: number, nowMs: number): StreamClock {
    // The clocks of two processes may differ, so `waitedMs` may be negative.
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

/** Measures the latencies of one stream. */
export class StreamClock {
  readonly #series: Series;
  readonly #receivedMs: number;
  /** Time of the stream's latest tokens in ms, or a special value. */
  #lastMs = notBegun;

  constructor(series: Series, receivedMs: number) {
    this.#series = series;
    this.#receivedMs = receivedMs;
  }

  /** Counts `count` tokens of one step. The time since the previous tokens is divided equally among them. */
  took(count: number, nowMs: number): void {
    const { firstToken, interToken } = this.#series;
    if (this.#lastMs === notBegun) firstToken.add((nowMs - this.#receivedMs) / 1000, 1);
    else if (this.#lastMs !== paused) interToken.add((nowMs - this.#lastMs) / 1000 / count, count);
    this.#lastMs = nowMs;
  }

  /** Stops the clock when the sequence is paused for a slow reader. The time until the next tokens is not counted. */
  pause(): void {
    if (this.#lastMs !== notBegun) this.#lastMs = paused;
  }
}

/** Counts observations per bucket. */
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
