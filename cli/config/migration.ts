// Settings of version 0.9.4 that this version no longer has. The error for such a setting says what to write instead, including
// the user's value. Used by given.ts and by the documentation.

interface OlderKey {
  readonly names: readonly string[];
  /** Section of the old key. */
  readonly section: string;
  readonly now: { readonly name: string; readonly flag: string; readonly section: string };
  /** Converts the value to its new form. `value` is "N" if no number is known, for example in the documentation. */
  readonly translate: (value: number | "N") => string;
}

const kvCache = { name: "kv_cache", flag: "--kv-cache", section: "paged_attn" };

/** Old keys that have a replacement. Each name also exists as a flag, with dashes. */
export const olderKeys: readonly OlderKey[] = [
  {
    names: ["context_len", "pa_context_len", "pa_ctxt_len"],
    section: "paged_attn",
    now: kvCache,
    translate: (value) => `${value}tokens`,
  },
  {
    names: ["memory_mb", "pa_memory_mb", "pa_gpu_mem"],
    section: "paged_attn",
    now: kvCache,
    translate: (value) => `${value}MiB`,
  },
  {
    names: ["memory_fraction", "pa_memory_fraction", "pa_gpu_mem_usage"],
    section: "paged_attn",
    now: { name: "gpu_memory_utilization", flag: "--gpu-memory-utilization", section: "paged_attn" },
    translate: String,
  },
  {
    names: ["max_seq_len"],
    section: "models",
    now: { name: "max_model_len", flag: "--max-model-len", section: "models" },
    translate: String,
  },
  {
    names: ["max_batch_size"],
    section: "models",
    now: { name: "max_seqs", flag: "--max-seqs", section: "" },
    translate: String,
  },
];

/** Returns what to write instead of an old key; undefined if `name` is not an old key. */
export function insteadOfKey(name: string, value: unknown): string | undefined {
  const older = olderKeys.find(({ names }) => names.includes(name));
  if (older === undefined) return undefined;
  const { now, section } = older;
  const written = older.translate(typeof value === "number" ? value : "N");
  const assigned = /^[\d.N]+$/.test(written) ? `${now.name} = ${written}` : `${now.name} = "${written}"`;
  const place = now.section === section ? "" : " at the top of the file";
  return `"${name}" is a key of 0.9.4; write ${assigned}${place} instead`;
}

/** Returns what to write instead of an old flag; undefined if `flag` is not an old flag. */
export function insteadOfFlag(flag: string, value: string | undefined): string | undefined {
  const older = olderKeys.find(({ names }) => names.some((name) => flag === `--${name.replaceAll("_", "-")}`));
  if (older === undefined) return undefined;
  const isNumber = value !== undefined && /^\d+(\.\d+)?$/.test(value);
  return `"${flag}" is a flag of 0.9.4; write ${older.now.flag} ${older.translate(isNumber ? Number(value) : "N")} instead`;
}
