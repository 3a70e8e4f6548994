// Metrics of the server (Prometheus text), as rates and levels over time.

export type Samples = ReadonlyMap<string, number>;

/** Returns the sum over all labels of each metric. Buckets of histograms are left out. */
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

/** Growth of a counter a second between two readings; null: not known. */
export function rateOf(name: string, before: Samples, now: Samples, seconds: number): number | null {
  const [first, last] = [before.get(name), now.get(name)];
  if (first === undefined || last === undefined || seconds <= 0 || last < first) return null;
  return (last - first) / seconds;
}

/** Growth of one counter over the growth of another between two readings; null: the other one has not grown. */
export function ratioOf(name: string, over: string, before: Samples, now: Samples): number | null {
  const growth = (of: string) => (now.get(of) ?? 0) - (before.get(of) ?? 0);
  return growth(over) > 0 ? growth(name) / growth(over) : null;
}

/** Mean of a histogram's new values between two readings; null: there are none. */
export function meanOf(name: string, before: Samples, now: Samples): number | null {
  const count = (now.get(`${name}_count`) ?? 0) - (before.get(`${name}_count`) ?? 0);
  const sum = (now.get(`${name}_sum`) ?? 0) - (before.get(`${name}_sum`) ?? 0);
  return count > 0 ? sum / count : null;
}
