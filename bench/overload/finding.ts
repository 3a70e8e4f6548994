// Finding of a scenario of `bench overload`: a measured value, its threshold, and whether it is met.
import { table } from "../../cli/bench/report.ts";

export interface Finding {
  readonly what: string;
  readonly measured: string;
  /** Threshold as text; "" if the value is only reported. */
  readonly bar: string;
  /** Whether the threshold is met; null if there is none. */
  readonly holds: boolean | null;
}

/** Returns a finding that requires a count to equal `expected`. */
export function exactly(what: string, measured: number, expected: number): Finding {
  return { what, measured: String(measured), bar: String(expected), holds: measured === expected };
}

export function atLeast(what: string, measured: number, least: number, shown = measured.toFixed(3)): Finding {
  return { what, measured: shown, bar: `>= ${least}`, holds: measured >= least };
}

export function atMost(what: string, measured: number, most: number, unit = "", digits = 3): Finding {
  const show = (value: number) => `${Number(value.toFixed(digits))}${unit}`;
  return { what, measured: show(measured), bar: `<= ${show(most)}`, holds: measured <= most };
}

/** Returns a finding without a threshold. */
export function told(what: string, measured: string): Finding {
  return { what, measured, bar: "", holds: null };
}

/** Returns a finding about the server's warnings. It passes if there are none. */
export function silence(what: string, complaints: readonly string[]): Finding {
  const shown = [...new Set(complaints)].join("; ").slice(0, 120);
  return { what, measured: shown || "nothing", bar: "nothing", holds: complaints.length === 0 };
}

export function findingsTable(scenario: string, findings: readonly Finding[]): string {
  const verdict = (holds: boolean | null) => (holds === null ? "" : holds ? "yes" : "NO");
  return table(
    [scenario, "measured", "bar", "holds"],
    findings.map(({ what, measured, bar, holds }) => [what, measured, bar, verdict(holds)]),
  );
}
