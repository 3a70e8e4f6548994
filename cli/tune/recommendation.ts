// Recommendation: the settings of a candidate as a command line, and as a settings file for from-config.
import { stringify } from "smol-toml";
import type { TuneCandidate, TuneResult } from "../../actors/api/tuning.ts";
import type { Config, ModelConfig, Origin } from "../config/config.ts";
import { appliesTo, entryAt, groups, isPerModel } from "../config/keys.ts";

/** Beginning of the names of the sections of a model in a settings file. */
const modelPrefix = "models.";

/** A setting of the user that the recommendation keeps. */
export interface KeptSetting {
  /** Section in a settings file; "" for the top of the file. */
  readonly section: string;
  readonly name: string;
  readonly flag: string;
  readonly value: string | number | boolean;
}

/** Settings in the recommended command that do not depend on the candidate. */
export interface CommandFlags {
  /** model_id, as given by the user. */
  readonly modelId: string;
  readonly kept: readonly KeptSetting[];
}

/** Settings that the recommendation chooses itself. The user's values of these settings are not repeated. */
const decided: ReadonlySet<string> = new Set([
  ...["modelId", "isq", "engine", "threads", "maxSeqs", "maxNumBatchedTokens", "maxModelLen", "kvCache"],
]);

/**
 * Returns the user's settings that the recommendation repeats. Secrets, and switches that are off as by default, are left out; so are
 * settings that are lists or tables, with a note.
 */
export function keptSettings(config: Config, model: ModelConfig, notes: string[]): KeptSetting[] {
  return config.origins.flatMap((origin) => {
    const { group, field } = origin;
    const entry = entryAt(group as "models", field as "modelId");
    const { section } = groups[group];
    if (section === null || decided.has(field) || entry.key.secret || !appliesTo(entry, "serve")) return [];
    const value = valueAt(config, model, origin);
    const isPlain = typeof value === "string" || typeof value === "number" || typeof value === "boolean";
    if (isPlain)
      return value === (entry.key.default ?? false) ? [] : [{ section, name: entry.name, flag: entry.flag, value }];
    notes.push(`${entry.name} is not repeated in the recommended settings: add it`);
    return [];
  });
}

function valueAt(config: Config, model: ModelConfig, { group, field }: Origin): unknown {
  const whole: object = isPerModel(group) ? model : config;
  // The keys at the top of a file and of [[models]] have no section in the Config.
  const section: unknown = ["", "models"].includes(groups[group].section ?? "") ? whole : Reflect.get(whole, group);
  return Reflect.get(section as object, field);
}

/** Returns the command that serves the model with the settings of a candidate. */
export function commandOf(candidate: TuneCandidate, flags: CommandFlags): string {
  const { engine, threads, maxSequences, maxBatchTokens, contextTokens, kvTokens } = candidate;
  const { kept, isq } = quantized(candidate, flags);
  const words = [
    ...["troupe", "serve", "-m", flags.modelId],
    ...kept.flatMap(({ flag, value }) => (value === true ? [flag] : [flag, String(value)])),
    ...(isq === null ? [] : ["--isq", isq]),
    ...(isF16(candidate) ? ["--dtype", "f16"] : []),
    ...["--engine", engine, "--threads", String(threads), "--max-seqs", String(maxSequences)],
    ...["--max-num-batched-tokens", String(maxBatchTokens), "--max-model-len", String(contextTokens)],
    ...(kvTokens === null ? [] : ["--kv-cache", `${kvTokens}tokens`]),
  ];
  return words.map(quoted).join(" ");
}

/** Returns the text of the settings file with the recommended settings. */
export function settingsFile({ candidates, model, profile }: TuneResult, flags: CommandFlags): string {
  const candidate = candidates.find(({ isRecommended }) => isRecommended) as TuneCandidate;
  const { engine, threads, maxSequences, maxBatchTokens, contextTokens, kvTokens } = candidate;
  const { kept, isq } = quantized(candidate, flags);
  const own = (section: string) =>
    Object.fromEntries(kept.filter((one) => one.section === section).map(({ name, value }) => [name, value]));
  const ofModel = [...new Set(kept.map(({ section }) => section))].filter((section) => section.startsWith(modelPrefix));
  const tree = {
    command: "serve",
    ...own(""),
    max_seqs: maxSequences,
    max_num_batched_tokens: maxBatchTokens,
    paged_attn: { ...own("paged_attn"), ...(kvTokens === null ? {} : { kv_cache: `${kvTokens}tokens` }) },
    troupe: { ...own("troupe"), engine, threads },
    models: [
      {
        model_id: flags.modelId,
        ...own("models"),
        ...(isF16(candidate) ? { dtype: "f16" } : {}),
        max_model_len: contextTokens,
        ...Object.fromEntries(ofModel.map((section) => [section.slice(modelPrefix.length), own(section)])),
        quantization: { ...own("models.quantization"), ...(isq === null ? {} : { isq }) },
      },
    ],
  };
  const comment = `# Settings of "${model.replaceAll(/\s/g, " ")}" for this machine, profile ${profile}, found by \`troupe tune\`.`;
  return `${comment}\n${stringify(withoutEmpty(tree) as object)}`;
}

/**
 * Returns the level of a candidate as the setting `isq`, and the settings of the user that can be combined with it. If the user has set
 * `quant`, it is the level. Settings about a quantization are refused without one.
 */
function quantized(
  candidate: TuneCandidate,
  { kept }: CommandFlags,
): Pick<TuneCandidate, "isq"> & Pick<CommandFlags, "kept"> {
  const has = (name: string) => kept.some((one) => one.name === name);
  if (has("quant")) return { kept, isq: null };
  if (candidate.isq !== null && !isF16(candidate)) return { kept, isq: candidate.isq };
  const unused = ["isq_organization", ...(has("topology") ? [] : ["imatrix", "calibration_file"])];
  return { kept: kept.filter(({ name }) => !unused.includes(name)), isq: null };
}

/**
 * Returns whether a candidate is a checkpoint with its floats converted to F16. F16 is set with `dtype`, and not with `isq`.
 */
function isF16({ isq }: TuneCandidate): boolean {
  return isq === "F16";
}

/** Returns a copy of a settings file's content without empty lists and empty tables. */
function withoutEmpty(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutEmpty);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).map(([key, inner]) => [key, withoutEmpty(inner)] as const);
  return Object.fromEntries(
    entries.filter(([, inner]) => typeof inner !== "object" || inner === null || Object.keys(inner).length > 0),
  );
}

function quoted(word: string): string {
  return /^[\w@%+=:,./~-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
