// Metrics of the server: parses Prometheus text and computes rates, ratios and means.

export type Samples = ReadonlyMap<string, number>;

/** Returns the value of each metric, summed over all labels. Histogram buckets are left out. */
export function samplesOf(text: string): Samples {
  const sums = new Map<string, number>();
  for (const line of text.split("\n")) {
    if (line === "" || line.startsWith("#")) continue;
    const [, name = "", value = ""] = /^([A-Za-z_:][\w:]*)(?:\{.*\})?\s+(\S+)/.exec(line) ?? [];
    if (name === "" || name.endsWith("_bucket")) continue;
    sums.set(name, (sums.get(name) ?? 0) + Number(value));
  }
  return sums;
}

/** Returns the increase of a counter per second between two samples; null if unknown. */
export function rateOf(name: string, before: Samples, now: Samples, seconds: number): number | null {
  const [first, last] = [before.get(name), now.get(name)];
  if (first === undefined || last === undefined || seconds <= 0 || last < first) return null;
  return (last - first) / seconds;
}

/**
 * Returns the increase of one counter divided by the increase of another between two samples; null if `over` has not increased.
 */
export function ratioOf(name: string, over: string, before: Samples, now: Samples): number | null {
  const growth = (of: string) => (now.get(of) ?? 0) - (before.get(of) ?? 0);
  return growth(over) > 0 ? growth(name) / growth(over) : null;
}

/** Returns the mean of the values that a histogram got between two samples; null if there are none. */
export function meanOf(name: string, before: Samples, now: Samples): number | null {
  const count = (now.get(`${name}_count`) ?? 0) - (before.get(`${name}_count`) ?? 0);
  const sum = (now.get(`${name}_sum`) ?? 0) - (before.get(`${name}_sum`) ?? 0);
  return count > 0 ? sum / count : null;
}
