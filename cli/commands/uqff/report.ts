// Report on UQFF files: uqff_report.json, in the format of mistral.rs.
import { basename } from "node:path";
import type { UqffFormat } from "../../../engines/files/uqff/layers.ts";
import { shardSets } from "../../../engines/files/uqff/names.ts";
import { type UqffFiles, uqffVersion } from "../../../engines/files/uqff/uqff-files.ts";
import { stemOfType } from "../../../engines/quantization/plan/levels.ts";

export const reportFile = "uqff_report.json";

/** Facts about one layer, as input of the report. */
export interface ReportedLayer {
  readonly key: string;
  readonly format: UqffFormat;
  readonly typeName: string;
  readonly shape: readonly number[];
}

/** Returns the part of the report about one quantization. `quant`: name of the quantization; `shards`: paths of its files. */
export function outputOf(quant: string, shards: readonly string[], layers: readonly ReportedLayer[]) {
  const counts: Record<string, number> = {};
  const details = layers.map(({ key, format, typeName, shape }) => {
    const stored = format === "unquant" || format === "fp8" ? format : stemOfType(typeName);
    counts[stored] = (counts[stored] ?? 0) + 1;
    return { module: key, stored, shape };
  });
  // Layers that are stored as floats although the other layers are quantized.
  const fallbacks = isFloat(quant) ? [] : details.filter(({ stored }) => stored === "unquant");
  return {
    quant,
    shards: shards.map((path) => basename(path)),
    layers: layers.length,
    actual_counts: counts,
    fallback_count: fallbacks.length,
    fallbacks: fallbacks.map(({ module, stored, shape }) => ({ module, from: quant, to: stored, shape })),
    layer_details: details,
  };
}

export type UqffOutput = ReturnType<typeof outputOf>;

export interface UqffReport {
  readonly schema: 1;
  readonly generated_by: { readonly tool: string };
  readonly base_model?: string;
  readonly repo_id?: string;
  readonly uqff_version: string;
  readonly outputs: readonly UqffOutput[];
}

export interface ReportNames {
  /** Name of the program that creates the report. */
  readonly tool: string;
  readonly baseModel: string | null;
  readonly repoId: string | null;
}

export function reportWith(outputs: readonly UqffOutput[], { tool, baseModel, repoId }: ReportNames): UqffReport {
  return {
    schema: 1,
    generated_by: { tool },
    ...(baseModel === null ? {} : { base_model: baseModel }),
    ...(repoId === null ? {} : { repo_id: repoId }),
    uqff_version: Object.values(uqffVersion).join("."),
    outputs,
  };
}

/** Returns the report on UQFF files. `models` maps the path of the first shard of each quantization to its files. */
export function reportOn(models: ReadonlyMap<string, UqffFiles>, names: ReportNames): UqffReport {
  const outputs = [...models].map(([path, { files, layers }]) => {
    const shards = files.slice(0, -1);
    return outputOf(shardSets([basename(path)])[0]?.stem ?? "", shards, layers);
  });
  return reportWith(outputs, names);
}

function isFloat(typeName: string): boolean {
  return /^b?f(?:16|32)$/.test(typeName);
}
