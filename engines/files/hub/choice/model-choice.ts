// Model choice: selects one model, which is a file or all shards of a split model, among the GGUF files of a repository
// or folder. Works on names only, for the hub's listing, its cache, and local folders; no disk or network access.
import { posix } from "node:path";
import { ServerError } from "../../../../runtime/errors.ts";
import { suggestion } from "../../../../runtime/nearest.ts";
import { shardPaths, stemOf } from "../../gguf/shards.ts";

/** A model in a repository: all its files in order, and the file to load first. */
interface ModelFiles {
  readonly first: string;
  readonly files: readonly string[];
  readonly missing: readonly string[];
}

export interface Choice {
  /** Name of the repository or folder, as shown in error messages. */
  readonly place: string;
  /** A file name or a quantisation; null = the only model, or the first available quantisation of `preferred`. */
  readonly wanted: string | null;
  /** Quantisations that may be chosen without being named, best first. */
  readonly preferred: readonly string[];
  /** If set, the model is chosen by size instead of by `preferred`. */
  readonly room?: Room | undefined;
}

export interface Room {
  /** Size in bytes that the model should not exceed. */
  readonly bytes: number;
  /** Sizes of the files in bytes, by path; null = unknown. */
  readonly sizes: ReadonlyMap<string, number | null>;
}

/** Unquantized number types, in the order of preference as a source for quantization. */
const floats = ["BF16", "F16", "F32"];

/** Default quantisations. They are small enough for most machines and precise enough for most uses. */
export const preferredQuantisations = ["Q4_K_M", "Q4_0", "Q4_1", "Q5_K_M", "Q8_0", "F16", "BF16", "F32"];

// Image and audio projectors, importance matrices and bare vocabularies are also GGUF files, but not models.
const otherPattern = /(?:^|[-._])(?:mmproj|imatrix)(?:[-._]|$)|^ggml-vocab-/i;
const quantisationPattern = /(?:^|[-._/])((?:UD-)?(?:I?Q\d\w*|TQ\d_\d|B?F16|FP16|F32|FP32|MXFP4\w*))(?=$|[-./])/gi;
const listedLimit = 30;

/** Returns the files of the chosen model. Throws `model_file_invalid` with a list of the available models. */
export function chooseModel(paths: readonly string[], choice: Choice): readonly string[] {
  // A .bin file, which has the format before GGUF, is chosen only by its full name.
  const named = paths.find((path) => path === choice.wanted && /\.bin$/i.test(path));
  if (named !== undefined) return [named];
  const models = groupModels(paths);
  const { first, files, missing } = chooseOne(models, paths, choice);
  if (missing.length === 0) return files;
  const lacks = missing.map((path) => `"${path}"`).join(", ");
  throw invalid(`"${first}" in ${choice.place} is one of ${files.length} shards; missing: ${lacks}`);
}

/** Whether there is a GGUF model among the files. */
export function hasGguf(paths: readonly string[]): boolean {
  return groupModels(paths).length > 0;
}

function chooseOne(models: readonly ModelFiles[], paths: readonly string[], choice: Choice): ModelFiles {
  const { place, wanted, preferred, room } = choice;
  if (wanted !== null) return chooseWanted(models, paths, wanted, place);
  const [only, ...others] = models;
  if (only === undefined) throw invalid(`there is no GGUF model in ${place}${otherFiles(paths)}`);
  if (others.length === 0) return only;
  const sized = room === undefined ? null : chooseBySize(models, room);
  if (sized !== null) return sized;
  for (const quantisation of preferred) {
    const [found, ...more] = models.filter(({ first }) => quantisationOf(first) === quantisation);
    if (found !== undefined && more.length === 0) return found;
    if (found !== undefined) break;
  }
  throw invalid(`there are several models in ${place}; name one of them${list(models)}`);
}

/**
 * Returns the largest quantized model that fits, or else the smallest. If no model is quantized, returns the best source for quantization.
 * null = no size is known.
 */
function chooseBySize(models: readonly ModelFiles[], { bytes, sizes }: Room): ModelFiles | null {
  const sized = models.flatMap((model) => {
    const parts = model.files.map((file) => sizes.get(file) ?? null);
    const total = parts.reduce<number | null>((sum, part) => (sum === null || part === null ? null : sum + part), 0);
    return total === null || model.missing.length > 0 ? [] : [{ model, total }];
  });
  const quantized = sized.filter(({ model }) => !floats.includes(quantisationOf(model.first) ?? ""));
  const inOrder = quantized.sort((one, other) => other.total - one.total);
  const found = inOrder.find(({ total }) => total <= bytes) ?? inOrder.at(-1);
  if (found !== undefined) return found.model;
  return (
    floats.flatMap((float) => sized.filter(({ model }) => quantisationOf(model.first) === float))[0]?.model ?? null
  );
}

function chooseWanted(
  models: readonly ModelFiles[],
  paths: readonly string[],
  wanted: string,
  place: string,
): ModelFiles {
  const lower = wanted.toLowerCase();
  const named = models.filter(({ files }) => files.some((path) => isName(path.toLowerCase(), lower)));
  const exact = models.filter(({ first }) => quantisationOf(first) === normal(wanted));
  const part = models.filter(({ first }) => hasPart(first.toLowerCase(), lower));
  for (const found of [named, exact, part]) {
    if (found.length > 1) throw invalid(`"${wanted}" fits several models in ${place}; name a file${list(found)}`);
    if (found[0] !== undefined) return found[0];
  }
  if (paths.some((path) => isName(path.toLowerCase(), lower))) {
    throw invalid(`"${wanted}" in ${place} is not a language model in GGUF format${list(models)}`);
  }
  const known = models.flatMap(({ first }) => [first, posix.basename(first), quantisationOf(first) ?? first]);
  throw invalid(`there is no model "${wanted}" in ${place}${suggestion(wanted, known)}${list(models)}`);
}

/** Groups files into models; all shards of a split model form one model. */
function groupModels(paths: readonly string[]): ModelFiles[] {
  const there = new Set(paths);
  const models = new Map<string, ModelFiles>();
  for (const path of [...paths].sort()) {
    if (!/\.gguf$/i.test(path) || otherPattern.test(stemOf(posix.basename(path)))) continue;
    const files = shardPaths(path);
    const first = files[0] ?? path;
    models.set(first, { first, files, missing: files.filter((file) => !there.has(file)) });
  }
  return [...models.values()];
}

/** Returns the quantisation at the end of a file's name, in capitals; null if there is none. */
function quantisationOf(path: string): string | null {
  const found = [...stemOf(path).matchAll(quantisationPattern)].at(-1)?.[1];
  return found === undefined ? null : normal(found);
}

function normal(quantisation: string): string {
  return quantisation.toUpperCase().replace(/^FP(?=16$|32$)/, "F");
}

function isName(path: string, wanted: string): boolean {
  return [path, posix.basename(path)].some((name) => name === wanted || stemOf(name) === wanted);
}

/** Whether a path contains `part` as a whole word: "Q4_K" is not a part of "x-Q4_K_M". */
function hasPart(path: string, part: string): boolean {
  const stem = stemOf(path);
  const isEdge = (character: string | undefined) => character === undefined || "-./".includes(character);
  for (let at = stem.indexOf(part); at !== -1; at = stem.indexOf(part, at + 1)) {
    const isStart = isEdge(stem[at - 1]) || stem[at - 1] === "_";
    if (isStart && isEdge(stem[at + part.length])) return true;
  }
  return false;
}

function list(models: readonly ModelFiles[]): string {
  if (models.length === 0) return "; there is no model at all";
  const names = models.slice(0, listedLimit).map(({ first }) => `"${first}"`);
  const rest = models.length > listedLimit ? ` and ${models.length - listedLimit} more` : "";
  return `: ${names.join(", ")}${rest}`;
}

function otherFiles(paths: readonly string[]): string {
  const isOther = paths.some((path) => /\.(?:safetensors|bin|pth?)$/i.test(path));
  return isOther
    ? "; its weights are in another format; GGUF files are read, and safetensors with a config.json beside them"
    : "";
}

function invalid(message: string): ServerError {
  return new ServerError("model_file_invalid", message, { param: "model_id" });
}
