// Table of the probes' results: one row for each probe on each HTTP server implementation and engine.

import type { Costs, Measurement, Watched } from "./measure.ts";
import type { Probe } from "./probe.ts";
import { seconds } from "./rig/client.ts";

const header = [
  "finding",
  "edge, engine",
  "front delay, quiet -> max",
  "/health max",
  "first token, quiet -> worst",
  "MiB before -> peak -> after",
  "held",
  "attacker",
];

export interface Line {
  readonly probe: Probe;
  readonly edge: string;
  readonly engine: string;
  readonly measured: Measurement;
}

/** Tested weaknesses. The first column of the table shows their numbers. */
const findings: readonly string[] = [
  "grammars of long names and many texts",
  "grammars of many parts",
  "long or endless rendering",
  "slow matchers",
  "abandoned grammars",
  "large stored responses",
  "logprobs of many choices",
  "memory of bodies",
  "time to read bodies and headers",
  "framing, idle and slow connections",
  "slots and queue of one client",
  "logs",
  "a model's file gone",
  "a full disk",
  "deleted responses, owners that are gone",
  "limits of the system, sessions, small responses, engines that die",
];

export function hostileTable(lines: readonly Line[]): string {
  const rows = lines.map(cells);
  const widths = header.map((name, column) => Math.max(name.length, ...rows.map((row) => row[column]?.length ?? 0)));
  const shown = (row: readonly string[]) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join("  ")
      .trimEnd();
  const legend = findings.map((text, i) => `${i + 1} ${text}`).join("; ");
  return [...[header, widths.map((width) => "-".repeat(width)), ...rows].map(shown), "", legend].join("\n");
}

export function cells({ probe, edge, engine, measured }: Line): string[] {
  const { outcome, costs, breaches } = measured;
  return [
    `${String(probe.finding).padStart(2)} ${probe.name}`,
    `${edge}, ${engine}`,
    ...(costs === null ? ["", "", "", ""] : costCells(costs)),
    breaches.length === 0 ? "yes" : `NO: ${breaches.join(", ")}`,
    outcome.attacker,
  ];
}

function costCells({ quietFrontMs, frontMs, healthMs, chats, schemaChats, memoryMiB, hasEnded }: Costs): string[] {
  const { before, peak, after } = memoryMiB;
  const waits = Number.isNaN(schemaChats.quietMs) ? waited(chats) : `${waited(chats)}; schema ${waited(schemaChats)}`;
  return [
    `${seconds(quietFrontMs)} -> ${Number.isNaN(frontMs) ? (hasEnded ? "ended" : "no word") : seconds(frontMs)}`,
    seconds(healthMs),
    waits,
    [before, peak, after].map((value) => value.toFixed(0)).join(" -> "),
  ];
}

function waited({ quietMs, worstMs, failures }: Watched): string {
  return `${seconds(quietMs)} -> ${seconds(worstMs)}${failures === "" ? "" : ` (${failures})`}`;
}
