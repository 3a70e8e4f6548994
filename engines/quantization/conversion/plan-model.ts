// Planned model: from a model's path and the user's wishes to the conversion that writes its GGUF file.
import { basename, dirname } from "node:path";
import { ServerError } from "../../../runtime/errors.ts";
import { type CheckpointOptions, openCheckpoint } from "../../files/checkpoint/checkpoint.ts";
import { tokenizerPairs } from "../../files/checkpoint/tokenizer/tokenizer-pairs.ts";
import { tensorTypes } from "../../files/gguf/tensors.ts";
import type { TypedValue } from "../../files/gguf/typed-value.ts";
import { decodableTypes } from "../codec/codec-types.ts";
import type { Importance } from "../importance/importance-file.ts";
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
  /** Names of the types of matrices that are quantized already and would be again. */
  readonly lossyTypes: readonly string[];
  /** Types of the level that rows did not fit, each with the type that takes its place and the number of such matrices. */
  readonly replaced: readonly string[];
}

const floatTypes: ReadonlySet<number> = new Set([0, 1, 30]);
/** Values of general.file_type by the GGUF type of most matrices. */
const fileTypes: ReadonlyMap<number, number> = new Map([
  ...([
    [0, 0],
    [1, 1],
    [2, 2],
    [3, 3],
    [6, 8],
    [7, 9],
    [8, 7],
    [10, 10],
    [11, 11],
  ] as const),
  ...([
    [12, 14],
    [13, 16],
    [14, 18],
    [20, 25],
    [23, 30],
    [30, 32],
    [39, 38],
  ] as const),
]);

/**
 * Plans the GGUF file of the model at `path`, which is a GGUF file or the config.json of a checkpoint. Reads no weights. Throws
 * `model_file_invalid`, `unsupported` or `config_invalid`. `warn` is told what the tokenizer does differently.
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
  if (wishes.organization === "moqe" && !source.tensors.some(({ name }) => isExpert(name))) {
    warn("isq_organization moqe quantizes the matrices of experts, and the model has none");
  }
  for (const { key, covers } of wishes.topology) {
    if (!source.tensors.some(({ name }) => covers(name)))
      warn(`the topology's entry "${key}" covers no tensor of the model`);
  }
  const importance = wishes.importance === null ? new Map() : fittingImportance(source, types, wishes.importance);
  const fileType = fileTypes.get(mostCommon(source, types)) ?? null;
  const conversion = await planConversion({ source, types, importance, fileType });
  return {
    conversion,
    sourceType: mostCommon(source, new Map()),
    isSame: isGguf && source.tensors.every(({ name, type }) => types.get(name) === type),
    replaced: replacements(source, types, wishes),
    lossyTypes: [
      ...new Set(source.tensors.filter((tensor) => isRequantized(tensor, types)).map(({ type }) => nameOf(type))),
    ],
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

/** Describes matrices whose rows do not fit the blocks of the level's type. */
function replacements({ tensors }: ModelSource, types: ReadonlyMap<string, number>, { level }: TypeOptions): string[] {
  if (level === null) return [];
  const counts = new Map<string, number>();
  for (const { name, shape, isMatrix } of tensors) {
    const type = types.get(name);
    const columns = shape[0] ?? 1;
    if (!isMatrix || type === undefined || columns % (tensorTypes.get(level.type)?.blockLength ?? 1) === 0) continue;
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

function isRequantized({ name, type }: SourceTensor, types: ReadonlyMap<string, number>): boolean {
  return !floatTypes.has(type) && types.get(name) !== type;
}

function nameOf(type: number): string {
  return tensorTypes.get(type)?.name ?? `type ${type}`;
}
