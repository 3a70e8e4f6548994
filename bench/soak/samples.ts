// Samples of a server's resource usage during a soak run, and the trend in the second half of the run.
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { nameOf, ownKiB, residentKiB, threadsOf } from "../proc.ts";

/** Names of the sampled resources. */
export const resources = [
  "heap MiB",
  "RSS MiB",
  "places' MiB",
  "handles",
  "threads",
  "processes",
  "temporary entries",
  "state entries",
] as const;

export type Resource = (typeof resources)[number];
export type Sample = Readonly<Record<Resource, number>>;

export interface Sampled {
  readonly pid: number;
  readonly places: readonly number[];
  readonly temporaryFolder: string;
  readonly stateDir: string;
  /** Heap of the main thread after a collection, in bytes. */
  heapBytes(): Promise<number>;
}

export async function takeSample({ pid, places, temporaryFolder, stateDir, heapBytes }: Sampled): Promise<Sample> {
  const sum = (count: (id: number) => number): number => [pid, ...places].reduce((total, id) => total + count(id), 0);
  return {
    "heap MiB": (await heapBytes()) / 2 ** 20,
    "RSS MiB": residentKiB(pid) / 1024,
    "places' MiB": places.reduce((total, id) => total + ownKiB(id), 0) / 1024,
    handles: sum(handlesOf),
    threads: sum((id) => threadsOf(id).length),
    processes: 1 + places.length,
    "temporary entries": entriesIn(temporaryFolder),
    "state entries": entriesIn(stateDir),
  };
}

export interface Trend {
  readonly resource: Resource;
  /** Fitted values at the beginning and at the end of the second half. */
  readonly from: number;
  readonly to: number;
  /** Growth over the second half, as a fraction. */
  readonly growth: number;
}

/**
 * Fits a line to the second half of the samples of each resource. Needs at least four samples. The fit is Theil and Sen's, the median of
 * the slopes between all pairs. A dip in less than a quarter of the samples tilts it little, for example when a V8 heap frees its garbage.
 */
export function trendsOf(samples: readonly Sample[]): Trend[] {
  const half = samples.slice(Math.floor(samples.length / 2));
  return resources.map((resource) => {
    const values = half.map((sample) => sample[resource]);
    const { start, end } = lineThrough(values);
    return { resource, from: start, to: end, growth: start <= 0 ? 0 : end / start - 1 };
  });
}

/** Fits a Theil-Sen line to equally spaced values. Returns the line's first and last value. */
function lineThrough(values: readonly number[]): { readonly start: number; readonly end: number } {
  const slope = median(values.flatMap((to, j) => values.slice(0, j).map((from, i) => (to - from) / (j - i))));
  const start = median(values.map((value, i) => value - slope * i));
  return { start, end: start + slope * (values.length - 1) };
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const [low, high] = [sorted[(sorted.length - 1) >> 1] ?? 0, sorted[sorted.length >> 1] ?? 0];
  return (low + high) / 2;
}

/** Returns the memory of each process of the server, as `PID PROGRAM MiB`. Shows which process caused a change of a sum. */
export function memoryByProcess({ pid, places }: Pick<Sampled, "pid" | "places">): string {
  return [pid, ...places].map((id) => `${id} ${nameOf(id)} ${(ownKiB(id) / 1024).toFixed(1)}`).join(", ");
}

function handlesOf(pid: number): number {
  try {
    return readdirSync(`/proc/${pid}/fd`).length;
  } catch {
    return 0;
  }
}

/** Counts files and folders, recursively. A folder that is removed meanwhile counts as empty. */
function entriesIn(folder: string): number {
  try {
    const entries = readdirSync(folder, { withFileTypes: true });
    return entries.reduce(
      (sum, entry) => sum + (entry.isDirectory() ? entriesIn(join(folder, entry.name)) : 0),
      entries.length,
    );
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return 0;
    throw error;
  }
}
