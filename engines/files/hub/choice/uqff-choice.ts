// UQFF choice: selects the shards of one quantization among the files of a repository or folder. Works on names only.
import { ServerError } from "../../../../runtime/errors.ts";
import { suggestion } from "../../../../runtime/nearest.ts";
import { isUqff, type ShardSet, shardSets } from "../../uqff/names.ts";

export interface UqffChoice {
  /** Name of the repository or folder, as shown in error messages. */
  readonly place: string;
  /**
   * Names of one or more shards of one quantization, or a quantization such as 4 or q4k (setting `from_uqff`). Empty = the only available
   * quantization, or the first available one of `preferred`.
   */
  readonly wanted: readonly string[];
  /** Quantizations that may be chosen without being named, best first. */
  readonly preferred: readonly string[];
}

/** Types that mistral.rs writes for a number of bits, in its order. */
const typesOfBits: Readonly<Record<string, readonly string[]>> = {
  "2": ["q2k", "afq2"],
  "3": ["q3k", "afq3"],
  "4": ["q4k", "afq4", "hqq4"],
  "5": ["q5k"],
  "6": ["q6k", "afq6"],
  "8": ["q8_0", "afq8", "hqq8"],
};
const listedLimit = 30;

/** Whether there are weights in UQFF among the files. */
export function hasUqff(paths: readonly string[]): boolean {
  return paths.some((path) => isUqff(path) && !path.includes("/"));
}

/** Returns the shards of the chosen quantization in order. Throws `model_file_invalid` with a list of the available quantizations. */
export function chooseShards(paths: readonly string[], choice: UqffChoice): readonly string[] {
  const sets = shardSets(paths.filter((path) => !path.includes("/")));
  const { files, missing } = chooseSet(sets, choice);
  if (missing.length === 0) return files;
  throw missingFile(missing[0] as string, files.find((file) => !missing.includes(file)) ?? "", choice);
}

/** Returns the error for a missing file that the shards need. */
export function missingFile(name: string, shard: string, { place }: UqffChoice): ServerError {
  return invalid(`"${shard}" in ${place} expects "${name}" beside it, which is missing; fetch all files of the model`);
}

function chooseSet(sets: readonly ShardSet[], choice: UqffChoice): ShardSet {
  const { place, wanted, preferred } = choice;
  const [only, ...more] = sets;
  if (only === undefined)
    throw invalid(`there is no .uqff file in ${place}; name a place that has one, or remove from_uqff`);
  if (wanted.length === 0) {
    const found =
      more.length === 0 ? only : preferred.map((name) => named(sets, name)).find((set) => set !== undefined);
    if (found !== undefined) return found;
    throw invalid(`there are several models in ${place}; name one with from_uqff${list(sets)}`);
  }
  const found = wanted.map((name) => named(sets, name) ?? refuse(sets, name, place));
  const [first = only] = found;
  const other = found.find((set) => set !== first);
  if (other === undefined) return first;
  throw invalid(
    `from_uqff names files of "${first.stem}" and of "${other.stem}"; name one: further shards are found by their numbers`,
  );
}

/** Returns the set of shards with this name: a file name, a stem, a type, or a number of bits. */
function named(sets: readonly ShardSet[], name: string): ShardSet | undefined {
  const exact = sets.find(
    ({ stem, files }) => stem === name || files.some((file) => file === name || file === `${name}.uqff`),
  );
  if (exact !== undefined) return exact;
  const types = Object.hasOwn(typesOfBits, name) ? (typesOfBits[name] as readonly string[]) : [name];
  return types.map((type) => sets.find(({ stem }) => spelled(stem) === spelled(type))).find((set) => set !== undefined);
}

function spelled(name: string): string {
  return name.toLowerCase().replaceAll(/[_-]/g, "");
}

function refuse(sets: readonly ShardSet[], name: string, place: string): never {
  const known = sets.flatMap(({ stem, files }) => [stem, ...files]);
  throw invalid(`there is no UQFF file "${name}" in ${place}${suggestion(name, known)}${list(sets)}`);
}

function list(sets: readonly ShardSet[]): string {
  const names = sets.slice(0, listedLimit).map(({ files }) => `"${files[0]}"`);
  return `: ${names.join(", ")}${sets.length > listedLimit ? ` and ${sets.length - listedLimit} more` : ""}`;
}

function invalid(message: string): ServerError {
  return new ServerError("model_file_invalid", message, { param: "from_uqff" });
}
