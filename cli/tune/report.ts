// Report of a tuning as text: a table of the candidates, and the recommended command.
import type { TuneCandidate, TuneResult } from "../../actors/api/tuning.ts";
import { textTable } from "../commands/table.ts";

/** Formats the report. `configPath`: path of the file with the recommended settings; null if none was written. */
export function report(result: TuneResult, configPath: string | null): string {
  const { model, profile, backend, candidates, recommendedCommand, totalBytes, seconds, warnings, notes } = result;
  const rows = candidates.map(rowOf);
  return [
    `${model} on ${backend}, ${gib(totalBytes)} of memory, profile ${profile}, ${seconds.toFixed(0)} s`,
    "",
    textTable([header, ...rows]),
    "",
    "Speeds are tokens/s: prefill, decode of one sequence, decode of 16 sequences in total.",
    ...notes.map((note) => `Note: ${note}.`),
    ...warnings.map((warning) => `Warning: ${warning}.`),
    "",
    "Recommended:",
    `  ${recommendedCommand}`,
    ...(configPath === null ? [] : [`  or: troupe from-config -f ${configPath}`]),
  ].join("\n");
}

const header = ["", "isq", "weights", "engine", "threads", "quality", "memory", "context", "prefill", "decode", "16"];

function rowOf({
  isq,
  isqName,
  engine,
  threads,
  quality,
  fit,
  memoryBytes,
  contextTokens,
  speeds,
  ...one
}: TuneCandidate) {
  const speed = (value: number | null | undefined) => (value == null ? "-" : value.toFixed(value < 10 ? 1 : 0));
  return [
    one.isRecommended ? "*" : "",
    isq ?? "-",
    isqName,
    engine,
    String(threads),
    quality,
    fit === "fits" ? gib(memoryBytes) : `${gib(memoryBytes)}, ${fit}`,
    fit === "fits" ? String(contextTokens) : "-",
    speed(speeds?.prompt),
    speed(speeds?.decode),
    speed(speeds?.batchedDecode),
  ];
}

function gib(bytes: number): string {
  return `${(bytes / 2 ** 30).toFixed(2)} GiB`;
}
