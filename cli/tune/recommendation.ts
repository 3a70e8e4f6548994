// Recommendation: the settings of a candidate as a command line, and as a settings file for from-config.
import { stringify } from "smol-toml";
import type { TuneCandidate, TuneResult } from "../../actors/api/tuning.ts";

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

/** Returns the command that serves the model with the settings of a candidate. */
export function commandOf(candidate: TuneCandidate, flags: CommandFlags): string {
  const { isq, engine, threads, maxSequences, maxBatchTokens, contextTokens, kvTokens } = candidate;
  const words = [
    ...["troupe", "serve", "-m", flags.modelId],
    ...flags.kept.flatMap(({ flag, value }) => (value === true ? [flag] : [flag, String(value)])),
    ...(isq === null ? [] : isF16(candidate) ? ["--dtype", "f16"] : ["--isq", isq]),
    ...["--engine", engine, "--threads", String(threads), "--max-seqs", String(maxSequences)],
    ...["--max-num-batched-tokens", String(maxBatchTokens), "--max-model-len", String(contextTokens)],
    ...(kvTokens === null ? [] : ["--kv-cache", `${kvTokens}tokens`]),
  ];
  return words.map(quoted).join(" ");
}

/** Returns the text of the settings file with the recommended settings. */
export function settingsFile({ candidates, model, profile }: TuneResult, flags: CommandFlags): string {
  const candidate = candidates.find(({ isRecommended }) => isRecommended) as TuneCandidate;
  const { isq, engine, threads, maxSequences, maxBatchTokens, contextTokens, kvTokens } = candidate;
  const own = (section: string) =>
    Object.fromEntries(flags.kept.filter((kept) => kept.section === section).map(({ name, value }) => [name, value]));
  const quantization = isq === null || isF16(candidate) ? {} : { isq };
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
        format: own("models.format"),
        quantization: { ...own("models.quantization"), ...quantization },
        device: own("models.device"),
      },
    ],
  };
  const comment = `# Settings of "${model.replaceAll(/\s/g, " ")}" for this machine, profile ${profile}, found by \`troupe tune\`.`;
  return `${comment}\n${stringify(withoutEmpty(tree) as object)}`;
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
