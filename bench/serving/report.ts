// Report of the rounds of a load: one table per load with the medians, the value of each round, and the ratios to the second
// server if there is one.
import { median, table } from "../../cli/bench/report.ts";
import type { RoundMetrics } from "./metrics.ts";
import type { LoadKind } from "./options.ts";

/** All rounds of one load. */
export interface LoadReport {
  readonly load: LoadKind;
  readonly ours: readonly RoundMetrics[];
  /** Rounds of the second server; empty if there is none. */
  readonly peers: readonly RoundMetrics[];
}

interface Line {
  readonly name: string;
  readonly digits: number;
  readonly hasRatio?: false;
  readonly value: (round: RoundMetrics) => number | null;
}

const lines: readonly Line[] = [
  { name: "output tokens/s", digits: 1, value: (round) => round.outputTokensPerSecond },
  { name: "over the C++ bound", digits: 3, value: (round) => round.overBound },
  { name: "requests/s", digits: 2, value: (round) => round.requestsPerSecond },
  ...percentileLines("first token ms", 0, (round) => round.firstTokenMs),
  ...percentileLines("ms a token", 2, (round) => round.perTokenMs),
  ...percentileLines("pause ms", 1, (round) => round.gapMs),
  ...percentileLines("request ms", 0, (round) => round.latencyMs),
  { name: "tokens in", digits: 1, hasRatio: false, value: (round) => round.meanPromptTokens },
  { name: "of them cached", digits: 1, hasRatio: false, value: (round) => round.meanCachedTokens },
  { name: "tokens out", digits: 1, hasRatio: false, value: (round) => round.meanOutputTokens },
  {
    name: "failed requests",
    digits: 0,
    hasRatio: false,
    value: (round) => Object.values(round.errors).reduce((a, b) => a + b, 0),
  },
  { name: "peak resident MiB", digits: 0, value: (round) => round.peakMiB },
  { name: "front late ms, p50", digits: 1, value: (round) => round.frontDelayMs?.p50 ?? null },
  { name: "front late ms, p99", digits: 1, value: (round) => round.frontDelayMs?.p99 ?? null },
  { name: "front late ms, max", digits: 1, value: (round) => round.frontDelayMs?.max ?? null },
];

export function loadTable({ load, ours, peers }: LoadReport): string {
  const hasPeer = peers.length > 0;
  const rows = lines.filter((line) => known(ours, line).length > 0).map((line) => row(line, ours, peers));
  const header = hasPeer ? ["", "ratio", "ours", "rounds", "peer", "rounds"] : ["", "median", "rounds"];
  return [heading(load, ours), "", table(header, rows), ...failures("ours", ours), ...failures("peer", peers)].join(
    "\n",
  );
}

function row(line: Line, ours: readonly RoundMetrics[], peers: readonly RoundMetrics[]): string[] {
  const [mine, theirs] = [known(ours, line), known(peers, line)];
  const side = (values: readonly number[]) => {
    const shown = values.map((value) => value.toFixed(line.digits));
    return values.length === 0 ? ["", ""] : [median(values).toFixed(line.digits), shown.join(" ")];
  };
  if (peers.length === 0) return [line.name, ...side(mine)];
  // There is no ratio to a median of 0. For example, embeddings have no output tokens.
  const hasRatio = line.hasRatio !== false && theirs.length > 0 && median(theirs) > 0;
  const ratio = hasRatio ? (median(mine) / median(theirs)).toFixed(3) : "";
  return [line.name, ratio, ...side(mine), ...side(theirs)];
}

/** Returns the values of one table line, without the rounds in which the value was not measured. */
function known(rounds: readonly RoundMetrics[], { value }: Line): number[] {
  return rounds.map(value).filter((number): number is number => number !== null && !Number.isNaN(number));
}

function heading({ kind, amount }: LoadKind, rounds: readonly RoundMetrics[]): string {
  const requests = `${rounds[0]?.requests ?? 0} requests a round`;
  return kind === "clients" ? `${amount} at once, ${requests}` : `${amount} arrivals/s, ${requests}`;
}

function percentileLines(
  name: string,
  digits: number,
  value: (round: RoundMetrics) => RoundMetrics["gapMs"],
): readonly Line[] {
  const all = ["p50", "p90", "p99"] as const;
  return all.map((rank) => ({ name: `${name}, ${rank}`, digits, value: (round) => value(round)[rank] }));
}

function failures(side: string, rounds: readonly RoundMetrics[]): string[] {
  return rounds.flatMap(({ errors }, round) =>
    Object.entries(errors).map(([kind, count]) => `${side}, round ${round + 1}: ${count} failed with "${kind}"`),
  );
}
