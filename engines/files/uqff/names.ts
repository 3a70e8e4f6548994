// Names of UQFF files: a model's quantized weights are in shards `NAME-0.uqff`, `NAME-1.uqff` and so on, or in one file without a number.
// Works on names only.
import { basename } from "node:path";

const extension = /\.uqff$/i;
const shardName = /^(.*)-(\d{1,4})\.uqff$/i;

/** File with the tensors that are not quantized. */
export const residualFile = "residual.safetensors";

/** Whether a path names a UQFF file. As a model's path, it names the first shard; the other files are in the same folder. */
export function isUqff(path: string): boolean {
  return extension.test(path);
}

/** Shards of one model. */
export interface ShardSet {
  /** Name without number and extension: q4k. */
  readonly stem: string;
  /** Names of the files in order. */
  readonly files: readonly string[];
  /** Names of missing files. They are known to be missing because other files have higher numbers. */
  readonly missing: readonly string[];
}

/** Returns the sets of shards among the names of files, in the order of their stems. */
export function shardSets(names: readonly string[]): ShardSet[] {
  const found = new Map<string, Map<number, string>>();
  const single: ShardSet[] = [];
  for (const name of names) {
    if (!isUqff(name)) continue;
    const [, stem, number] = shardName.exec(name) ?? [];
    if (stem === undefined) single.push({ stem: name.replace(extension, ""), files: [name], missing: [] });
    else found.set(stem, (found.get(stem) ?? new Map<number, string>()).set(Number(number), name));
  }
  const sets = [...found].map(([stem, numbers]): ShardSet => {
    const count = Math.max(...numbers.keys()) + 1;
    const all = Array.from({ length: count }, (_, number) => numbers.get(number) ?? `${stem}-${number}.uqff`);
    return { stem, files: all, missing: all.filter((_, number) => !numbers.has(number)) };
  });
  return [...single, ...sets].sort((one, other) => (basename(one.stem) < basename(other.stem) ? -1 : 1));
}
