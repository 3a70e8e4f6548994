// Planned model: from a model's path and the user's wishes to the conversion that writes its GGUF file.
import { basename, dirname } from "node:path";
import { ServerError } from "../../../runtime/errors.ts";
import { type CheckpointOptions, openCheckpoint } from "../../files/checkpoint/checkpoint.ts";
import { tokenizerPairs } from "../../files/checkpoint/tokenizer/tokenizer-pairs.ts";
import { fileTypeOf } from "../../files/gguf/file-types.ts";
import { floatTypes, tensorTypes } from "../../files/gguf/tensors.ts";
import type { TypedValue } from "../../files/gguf/typed-value.ts";
import { decodableTypes } from "../codec/codec-types.ts";
import type { Importance } from "../importance/importance-file.ts";
import type { Level } from "../plan/levels.ts";
import { isExpert, planTypes, type TypeOptions } from "../plan/types.ts";
import { type Conversion, planConversion } from "./conversion.ts";
import { type ModelSource, openGgufSource, type SourceTensor } from "./model-source.ts";

export interface ModelWishes extends TypeOptions {
  /** Importance of the columns of matrices; null: all count the same. */
  readonly importance: Importance | null;
  /** Changes of a checkpoint's config.json. */
  readonly overrides: CheckpointOptions["overrides"];
  /** Folder or file that has the tokenizer of a checkpoint; null: its own folder. */
  readonly tokenizer: string | null;
}

export interface PlannedModel {
  readonly conversion: Conversion;
  /** Whether the file to write would have the same weights as the GGUF file at the path. */
  readonly isSame: boolean;
  /** GGUF type of most weights of the source's matrices. */
  readonly sourceType: number;
}

/** Version of the block formats of ggml, which readers look for. */
const quantizationVersion = 2;

/**
 * Plans the GGUF file of the model at `path`, which is a GGUF file or the config.json of a checkpoint. Reads no weights. Throws
 * `model_file_invalid`, `unsupported` or `config_invalid`. `warn` is told what differs from what the user may expect: the tokenizer's
 * rules, types in place of others, weights that are quantized twice.
 */
export async function planModel(
  path: string,
  wishes: ModelWishes,
  warn: (message: string) => void,
): Promise<PlannedModel> {
  const isGguf = isGgufPath(path);
  const source = await openModelSource(path, wishes, warn);
  const types = planTypes(source.tensors, wishes);
  checkDecodable(source, types);
  warnOfTypes(source, types, wishes, warn);
  const importance = wishes.importance === null ? new Map() : fittingImportance(source, types, wishes.importance);
  const fileType = fileTypeOf(nameOf(mostCommon(source, types)));
  const conversion = await planConversion({ source, types, importance, fileType });
  return {
    conversion,
    sourceType: mostCommon(source, new Map()),
    isSame: isGguf && source.tensors.every(({ name, type }) => types.get(name) === type),
  };
}

/**
 * Opens the model at `path`, which is a GGUF file or the config.json of a checkpoint. Reads no weights. Throws as `planModel`
 * does.
 */
export async function openModelSource(
  path: string,
  options: Pick<ModelWishes, "overrides" | "tokenizer">,
  warn: (message: string) => void,
): Promise<ModelSource> {
  if (!isGgufPath(path)) return await openCheckpointSource(dirname(path), options, warn);
  refuseCheckpointWishes(path, options);
  return await openGgufSource(path);
}

function isGgufPath(path: string): boolean {
  return basename(path) !== "config.json";
}

function refuseCheckpointWishes(
  path: string,
  { overrides = {}, tokenizer }: Pick<ModelWishes, "overrides" | "tokenizer">,
): void {
  const param = tokenizer !== null ? "tok_model_id" : "hf_overrides";
  if (tokenizer === null && Object.keys(overrides).length === 0) return;
  const message = `${param} changes what is read of a model in safetensors, but ${path} is a GGUF file; remove the setting`;
  throw new ServerError("config_invalid", message, { param });
}

/** Returns the name of the model in a folder. In the hub's cache the folder is named after a commit, its repository is above. */
export function checkpointName(folder: string): string {
  const [, repository] = /models--(?:[^/\\]+--)?([^/\\]+)[/\\]snapshots[/\\][^/\\]+$/.exec(folder) ?? [];
  return repository ?? basename(folder);
}

async function openCheckpointSource(
  folder: string,
  { overrides = {}, tokenizer }: Pick<ModelWishes, "overrides" | "tokenizer">,
  warn: (message: string) => void,
): Promise<ModelSource> {
  const { architecture, files, pairs, tensors, vocabSize } = await openCheckpoint(folder, { overrides });
  const all = new Map<string, TypedValue>([
    ["general.architecture", { type: "string", value: architecture }],
    ["general.name", { type: "string", value: checkpointName(folder) }],
    ["general.quantization_version", { type: "u32", value: quantizationVersion }],
    ...pairs,
    ...(await tokenizerPairs(tokenizer ?? folder, vocabSize, warn)),
  ]);
  const sources = tensors.map(({ name, shape, storedType, isMatrix, rows }) => {
    return { name, shape, type: storedType, isMatrix, values: rows };
  });
  return { files, pairs: all, tensors: sources };
}

/** Returns the importance of the tensors that are quantized. Throws if one has another number of columns. */
function fittingImportance(source: ModelSource, types: ReadonlyMap<string, number>, given: Importance): Importance {
  const fitting = new Map<string, Float32Array>();
  for (const { name, shape, type } of source.tensors) {
    const weights = given.get(name);
    if (weights === undefined || types.get(name) === type) continue;
    const [columns = 1, , matrices = 1] = shape;
    if (weights.length !== columns * matrices) {
      const message = `the importance matrix has ${weights.length} values for "${name}"; expected ${columns * matrices}: it belongs to another model`;
      throw new ServerError("config_invalid", message, { param: "imatrix" });
    }
    fitting.set(name, weights);
  }
  // An importance matrix of this model is of no use if no matrix is quantized.
  if (given.size === 0 || source.tensors.some(({ name }) => given.has(name))) return fitting;
  const message =
    "the importance matrix has no entry for any matrix of this model that is quantized; it belongs to another model";
  throw new ServerError("config_invalid", message, { param: "imatrix" });
}

/** Returns the type of most values of the matrices. */
function mostCommon({ tensors }: ModelSource, types: ReadonlyMap<string, number>): number {
  const values = new Map<number, number>();
  for (const { name, shape, type, isMatrix } of tensors) {
    if (!isMatrix) continue;
    const planned = types.get(name) ?? type;
    values.set(planned, (values.get(planned) ?? 0) + shape.reduce((product, length) => product * length, 1));
  }
  return [...values].reduce((most, one) => (one[1] > most[1] ? one : most), [0, 0])[0];
}

function warnOfTypes(
  { tensors }: ModelSource,
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
  const again = tensors.filter(({ name, type }) => !floatTypes.has(type) && types.get(name) !== type);
  const names = [...new Set(again.map(({ type }) => nameOf(type)))];
  if (names.length > 0) warn(`the weights are ${names.join(", ")} already; quantizing them again adds to their errors`);
}

/** Describes matrices whose rows do not fit the blocks of the level's type: the type that takes its place, and their number. */
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
