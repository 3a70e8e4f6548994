// Findings (measured values, some with thresholds) about a crowd of clients. If llama-server runs too, the findings include its
// results and the ratios to its results.
import type { Finding } from "../overload/finding.ts";
import { type CrowdResult, cachedShare, firstTextP50, tokensPerSecond } from "../serving/client/crowd.ts";
import { answered, ratioAtLeast, ratioAtMost, toldRounds } from "../serving/show.ts";

export function crowdFindings(mine: readonly CrowdResult[], theirs: readonly CrowdResult[] | undefined): Finding[] {
  return [
    ...sideFindings("ours", mine),
    ...(theirs
      ? [
          ...sideFindings("peer", theirs),
          ratioAtMost("first token over the peer's", mine.map(firstTextP50), theirs.map(firstTextP50), 1),
          ratioAtLeast("output tokens/s over the peer's", mine.map(tokensPerSecond), theirs.map(tokensPerSecond), 1),
        ]
      : []),
  ];
}

export function sideFindings(label: string, rounds: readonly CrowdResult[]): Finding[] {
  const answers = rounds.flatMap((round) => round.answers);
  return [
    answered(`${label}: answered`, answers),
    toldRounds(`${label}: share of prompts cached`, rounds.map(cachedShare), 3),
    toldRounds(`${label}: first token`, rounds.map(firstTextP50), 0, " ms"),
    toldRounds(`${label}: output tokens/s`, rounds.map(tokensPerSecond), 1),
  ];
}
