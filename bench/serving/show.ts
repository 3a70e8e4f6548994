// Table cells of measurements over several rounds: the median, followed by the value of each round.
import { median } from "../../cli/bench/report.ts";
import { atLeast, atMost, exactly, type Finding, told } from "../overload/finding.ts";
import { type Answer, isWhole } from "./client/ask.ts";

export function shown(rounds: readonly number[], digits: number, unit = ""): string {
  const each = rounds.length > 1 ? ` (${rounds.map((value) => value.toFixed(digits)).join(" ")})` : "";
  return `${median(rounds).toFixed(digits)}${unit}${each}`;
}

export function toldRounds(what: string, rounds: readonly number[], digits: number, unit = ""): Finding {
  return told(what, shown(rounds, digits, unit));
}

/** Checks that all responses are complete. If one is not, the finding contains the first failure. */
export function answered(what: string, answers: readonly Answer[]): Finding {
  const finding = exactly(what, answers.filter(isWhole).length, answers.length);
  const failed = answers.find((answer) => !isWhole(answer));
  return failed ? { ...finding, measured: `${finding.measured}; "${failed.error?.slice(0, 60)}"` } : finding;
}

/** Checks that the median of ours / theirs, computed for each round, is at most `most`. */
export function ratioAtMost(what: string, ours: readonly number[], theirs: readonly number[], most: number): Finding {
  const ratios = pairedRatios(ours, theirs);
  return { ...atMost(what, median(ratios), most), measured: shown(ratios, 3) };
}

export function ratioAtLeast(what: string, ours: readonly number[], theirs: readonly number[], least: number): Finding {
  const ratios = pairedRatios(ours, theirs);
  return atLeast(what, median(ratios), least, shown(ratios, 3));
}

/** Returns the ratio of each round. In each round, the two servers are measured one directly after the other. */
export function pairedRatios(ours: readonly number[], theirs: readonly number[]): number[] {
  return ours.map((value, round) => value / (theirs[round] ?? Number.NaN));
}
