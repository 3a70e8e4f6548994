// Report of measurements: computes medians over the rounds and prints a table.
import type { Measurement, Workload } from "./measure.ts";

export interface Row extends Workload {
  /** Median over the rounds. */
  readonly tokensPerSecond: number;
  readonly outsideShare: number;
  readonly rounds: readonly number[];
}

export function toRow(workload: Workload, rounds: readonly Measurement[]): Row {
  const speeds = rounds.map(({ tokensPerSecond }) => tokensPerSecond);
  const outsideShare = median(rounds.map((round) => round.outsideShare));
  return { ...workload, tokensPerSecond: median(speeds), outsideShare, rounds: speeds };
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const upper = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? Number.NaN) + upper) / 2;
}

/** Formats a table. The first column is left-aligned, the other columns are right-aligned. */
export function table(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const all = [header, ...rows];
  const widths = header.map((_, column) => Math.max(...all.map((row) => row[column]?.length ?? 0)));
  const line = (row: readonly string[]) =>
    row.map((cell, i) => (i === 0 ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0))).join("  ");
  return [line(header), widths.map((width) => "-".repeat(width)).join("  "), ...rows.map(line)].join("\n");
}

export function engineTable(rows: readonly Row[]): string {
  return table(
    ["what", "sequences", "prompt", "new", "tokens/s", "outside the forward pass"],
    rows.map(({ kind, sequences, promptLength, newTokens, tokensPerSecond, outsideShare }) => [
      kind,
      String(sequences),
      String(promptLength),
      String(newTokens),
      tokensPerSecond.toFixed(1),
      `${(outsideShare * 100).toFixed(2)} %`,
    ]),
  );
}
