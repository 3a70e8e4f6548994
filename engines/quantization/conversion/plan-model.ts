// Model plan: turns a model's path and the user's settings into the conversion that writes its GGUF file.
import { basename, dirname } from "node:path";
import { ServerError } from "../../../runtime/errors.ts";
import { openCheckpoint } from "../../files/checkpoint/checkpoint.ts";
import type { JsonObject } from "../../files/checkpoint/config.ts";
import type { MatformerSlice } from "../../files/checkpoint/matformer/slice-file.ts";
import { tokenizerPairs } from "../../files/checkpoint/tokenizer/tokenizer-pairs.ts";
import { openGgml } from "../../files/ggml/ggml-model.ts";
import { fileTypeOf } from "../../files/gguf/file-types.ts";
import { floatTypes, isQuantizable, tensorTypes } from "../../files/gguf/tensors.ts";
import type { TypedValue } from "../../files/gguf/typed-value.ts";
import { formatOf, type ModelFormat } from "../../files/model-format.ts";
import { isUqff } from "../../files/uqff/names.ts";
import { decodableTypes } from "../codec/codec-types.ts";
import type { Importance } from "../importance/importance-file.ts";
import { byTensor } from "../importance/module-names.ts";
import type { Level } from "../plan/levels.ts";
import { isExpert, planTypes, type TypeOptions } from "../plan/types.ts";
import { copyable } from "../rows/copyable.ts";
import { isMxfp4 } from "../rows/packed-mxfp4.ts";
import { type Conversion, planConversion } from "./conversion.ts";
import { blockRows, type ModelSource, openGgufSource, type SourceTensor } from "./model-source.ts";

/** How the files of a model are read. */
export interface SourceOptions {
  /** Changes of a checkpoint's config.json. */
  readonly overrides: JsonObject;
  /** Folder or file that has the tokenizer of a checkpoint; null = the checkpoint's own folder. */
  readonly tokenizer: string | null;
  /** Slice of a MatFormer checkpoint; null = the whole model. */
  readonly slice: MatformerSlice | null;
  /** Name of an architecture that replaces the model's own; null = the model's own. */
  readonly architecture: string | null;
  /** Number of query heads for each key head of a GGML file. */
  readonly queryHeads: number;
}

export interface ModelOptions extends TypeOptions, SourceOptions {
  /** Importance of the columns of matrices; null = all columns have the same weight. */
  readonly importance: Importance | null;
}

export interface PlannedModel {
  readonly conversion: Conversion;
  /** Whether the file to write would have the same weights as the GGUF file at the path. */
  readonly isSame: boolean;
  /** GGUF type of most weights of the source's matrices. */
  readonly sourceType: number;
}

/** Version of ggml's block formats, which programs that read the file check. */
const versionPair: [string, TypedValue] = ["general.quantization_version", { type: "u32", value: 2 }];

/**
 * Plans the GGUF file of the model at `path`: a GGUF or GGML file, the config.json of a checkpoint, or a UQFF file. Reads no weights.
 * Throws `model_file_invalid`, `unsupported` or `config_invalid`. `warn` is called with each difference from what the user may expect: in
 * the tokenizer's rules, types that replace others, weights that are quantized twice.
 */
export async function planModel(
  path: string,
  options: ModelOptions,
  warn: (message: string) => void,
): Promise<PlannedModel> {
  const format = await formatOf(path);
  const source = await openModelSource(path, options, warn);
  const types = planTypes(source.tensors, options);
  checkDecodable(source, types);
  warnOfTypes(source.tensors, types, options, warn);
  const importance = options.importance === null ? new Map() : fittingImportance(source, types, options.importance);
  const fileType = fileTypeOf(nameOf(mostCommon(source, types)));
  const conversion = await planConversion({ source, types, importance, fileType });
  return {
    conversion,
    sourceType: mostCommon(source, new Map()),
    isSame:
      format === "gguf" && !source.isRenamed && source.tensors.every(({ name, type }) => types.get(name) === type),
  };
}

/** Opens the model at `path`, as `planModel` does. Reads no weights. */
export async function openModelSource(
  path: string,
  options: SourceOptions,
  warn: (message: string) => void,
): Promise<ModelSource> {
  const format = await formatOf(path);
  refuseUnusedOptions(path, format, options);
  if (format === "ggml") return await openGgmlSource(path, options, warn);
  if (format === "gguf") return await openGgufSource(path, options.architecture);
  return await openCheckpointSource(path, options, warn);
}

/** Returns for each setting whether it is given, and the formats on which it has an effect. */
function uses({ overrides, tokenizer, slice, architecture, queryHeads }: SourceOptions) {
  return [
    ["tok_model_id", tokenizer !== null, ["plain", "uqff", "ggml"]],
    ["hf_overrides", Object.keys(overrides).length > 0, ["plain", "uqff", "ggml"]],
    ["matformer_slice_name", slice !== null, ["plain"]],
    ["arch", architecture !== null, ["plain", "uqff", "gguf"]],
    ["gqa", queryHeads !== 1, ["ggml"]],
  ] as const;
}

const formatNames = {
  plain: "a model in safetensors",
  uqff: "a UQFF file",
  gguf: "a GGUF file",
  ggml: "a GGML file",
} as const;

/** Throws `config_invalid` for a setting that does not change how a model of the format is read. */
export function refuseUnusedOptions(path: string, format: ModelFormat, options: SourceOptions): void {
  for (const [param, isGiven, formats] of uses(options)) {
    if (!isGiven || formats.some((one) => one === format)) continue;
    const expected = new Intl.ListFormat("en-GB", { type: "disjunction" }).format(
      formats.map((one) => formatNames[one]),
    );
    const message = `${param} is a setting of ${expected}, but ${path} is ${formatNames[format]}; remove the setting`;
    throw new ServerError("config_invalid", message, { param });
  }
}

/** Returns the name of the model in a folder. In the hub's cache, a folder is named after a commit, so the repository's name is used. */
export function checkpointName(folder: string): string {
  const [, repository] = /models--(?:[^/\\]+--)?([^/\\]+)[/\\]snapshots[/\\][^/\\]+$/.exec(folder) ?? [];
  return repository ?? basename(folder);
}

async function openCheckpointSource(
  path: string,
  { overrides, tokenizer, slice, architecture: named }: SourceOptions,
  warn: (message: string) => void,
): Promise<ModelSource> {
  const folder = dirname(path);
  const uqff = isUqff(path) ? path : null;
  const checkpoint = await openCheckpoint(folder, { overrides, slice, architecture: named, uqff });
  const { architecture, files, pairs, tensors, vocabSize } = checkpoint;
  for (const note of checkpoint.notes) warn(note);
  const all = new Map<string, TypedValue>([
    ["general.architecture", { type: "string", value: architecture }],
    ["general.name", { type: "string", value: checkpointName(folder) }],
    versionPair,
    ...pairs,
    ...(await tokenizerPairs(tokenizer ?? folder, vocabSize, warn)),
  ]);
  const sources = tensors.map(({ name, shape, storedType, isMatrix, rows }) => {
    return { name, shape, type: storedType, isMatrix, values: rows };
  });
  return { files, pairs: all, tensors: sources };
}

async function openGgmlSource(
  path: string,
  { overrides, tokenizer, queryHeads }: SourceOptions,
  warn: (message: string) => void,
): Promise<ModelSource> {
  const { pairs, vocabulary, vocabSize, tensors } = await openGgml(path, { queryHeads, overrides });
  const all = new Map<string, TypedValue>([
    ["general.architecture", { type: "string", value: "llama" }],
    ["general.name", { type: "string", value: basename(path) }],
    versionPair,
    ...pairs,
    ...(tokenizer === null ? vocabulary : await tokenizerPairs(tokenizer, vocabSize, warn)),
  ]);
  const sources = [...tensors].map(([name, { type, shape, offset }]): SourceTensor => {
    return {
      name,
      shape,
      type,
      isMatrix: isQuantizable({ name, shape }),
      values: blockRows({ shape, type, file: 0, offset }),
    };
  });
  return { files: [path], pairs: all, tensors: sources };
}

/** Returns the importance of the tensors that are quantized. Throws if a number of columns does not match. */
export function fittingImportance(
  { pairs, tensors }: Pick<ModelSource, "pairs" | "tensors">,
  types: ReadonlyMap<string, number>,
  importance: Importance,
): Importance {
  const given = byTensor(importance, String(pairs.get("general.architecture")?.value));
  const fitting = new Map<string, Float32Array>();
  for (const { name, shape, type } of tensors) {
    const found = given.get(name);
    if (found === undefined || types.get(name) === type) continue;
    const [columns = 1, , matrices = 1] = shape;
    const weights = matrices > 1 ? forEachMatrix(found, columns, matrices) : found;
    if (weights.length !== columns * matrices) {
      const message = `the importance matrix has ${weights.length} values for "${name}"; expected ${columns * matrices}: it belongs to another model`;
      throw new ServerError("config_invalid", message, { param: "imatrix" });
    }
    fitting.set(name, weights);
  }
  // An importance matrix of this model is accepted even if no matrix is quantized.
  if (given.size === 0 || tensors.some(({ name }) => given.has(name))) return fitting;
  const message =
    "the importance matrix has no entry for any matrix of this model that is quantized; it belongs to another model";
  throw new ServerError("config_invalid", message, { param: "imatrix" });
}

/**
 * Returns the importance of each matrix of a stack. A single row applies to all matrices. A row of zeros, of a matrix that had no input, is
 * replaced by ones: all its columns have the same weight.
 */
function forEachMatrix(weights: Float32Array, columns: number, matrices: number): Float32Array {
  const isOne = weights.length === columns;
  const all = isOne
    ? Float32Array.from({ length: columns * matrices }, (_, i) => weights[i % columns] as number)
    : weights.slice();
  for (let at = 0; at < all.length; at += columns) {
    const row = all.subarray(at, at + columns);
    if (row.every((value) => value === 0)) row.fill(1);
  }
  return all;
}

/** Returns the type that most values of the matrices have. */
function mostCommon({ tensors }: ModelSource, types: ReadonlyMap<string, number>): number {
  const values = new Map<number, number>();
  for (const { name, shape, type, isMatrix } of tensors) {
    if (!isMatrix) continue;
    const planned = types.get(name) ?? type;
    values.set(planned, (values.get(planned) ?? 0) + shape.reduce((product, length) => product * length, 1));
  }
  return [...values].reduce((most, one) => (one[1] > most[1] ? one : most), [0, 0])[0];
}

export function warnOfTypes(
  tensors: readonly SourceTensor[],
  types: ReadonlyMap<string, number>,
  { level, organization, topology }: TypeOptions,
  warn: (message: string) => void,
): void {
  if (organization === "moqe" && !tensors.some(({ name }) => isExpert(name))) {
    warn("isq_organization moqe quantizes the matrices of experts, and the model has none");
  }
  for (const { key, covers } of topology) {
    if (!tensors.some(({ name }) => covers(name))) warn(`the topology's entry "${key}" covers no tensor of the model`);
  }
  if (level !== null) for (const replacement of replacements(tensors, types, level)) warn(replacement);
  // Blocks whose columns are reordered must be encoded again, even if their type stays the same.
  const again = tensors.filter(({ name, type, values }) => {
    const target = types.get(name);
    return !floatTypes.has(type) && (target !== type || (copyable(values, type) === null && !isMxfp4(values)));
  });
  const names = [...new Set(again.map(({ type }) => nameOf(type)))];
  if (names.length > 0) warn(`the weights are ${names.join(", ")} already; quantizing them again adds to their errors`);
}

/** Describes the matrices whose rows do not fit the blocks of the level's type: their number, and the type used instead. */
function replacements(tensors: readonly SourceTensor[], types: ReadonlyMap<string, number>, level: Level): string[] {
  const { blockLength = 1 } = tensorTypes.get(level.type) ?? {};
  const counts = new Map<string, number>();
  for (const { name, shape, isMatrix } of tensors) {
    const type = types.get(name);
    const [columns = 1] = shape;
    if (!isMatrix || type === undefined || columns % blockLength === 0) continue;
    const text = `rows of ${columns} values do not fit the blocks of ${level.name} and are ${nameOf(type)}`;
    counts.set(text, (counts.get(text) ?? 0) + 1);
  }
  return [...counts].map(([text, count]) => `${count} matrices: ${text}`);
}

/** Throws if a tensor would change its type, but its values cannot be read. */
function checkDecodable({ tensors }: ModelSource, types: ReadonlyMap<string, number>): void {
  for (const { name, type, values } of tensors) {
    if (values.kind !== "blocks" || types.get(name) === type || decodableTypes.has(type)) continue;
    const known = [...decodableTypes].map(nameOf).join(", ");
    const message = `tensor "${name}" is ${nameOf(type)}, which cannot be converted; expected one of ${known}: use a file with more bits`;
    throw new ServerError("unsupported", message, { param: "isq" });
  }
}

function nameOf(type: number): string {
  return tensorTypes.get(type)?.name ?? `type ${type}`;
}
