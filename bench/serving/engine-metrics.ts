// Reader of a server's /metrics page. The result is empty if the server has no such page.

/** Values by metric name with labels. */
export type EngineMetrics = ReadonlyMap<string, number>;

export async function engineMetrics(url: URL): Promise<EngineMetrics> {
  const response = await fetch(new URL("/metrics", url)).catch(() => null);
  if (!response?.ok) return new Map();
  const lines = (await response.text()).split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return new Map(
    lines.map((line) => {
      const end = line.lastIndexOf(" ");
      return [line.slice(0, end), Number(line.slice(end + 1))] as const;
    }),
  );
}

/** Returns the growth of a counter; null if the server does not have it. */
export function growth(name: string, before: EngineMetrics, after: EngineMetrics): number | null {
  const [from, to] = [before.get(name), after.get(name)];
  return from === undefined || to === undefined ? null : to - from;
}
