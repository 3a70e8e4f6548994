// Planned model: from a model's path and the user's wishes to the conversion that writes its GGUF file.
import { basename, dirname } from "node:path";
import { ServerError } from "../../../runtime/errors.ts";
import { type CheckpointOptions, openCheckpoint } from "../../files/checkpoint/checkpoint.ts";
import { tokenizerPairs } from "../../files/checkpoint/tokenizer/tokenizer-pairs.ts";
import { tensorTypes } from "../../files/gguf/tensors.ts";
import type { TypedValue } from "../../files/gguf/typed-value.ts";
import type { Importance } from "../importance/importance-file.ts";
import { planTypes, type TypeOptions } from "../plan/types.ts";
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
  /** Names of the types of matrices that are quantized already and would be again. */
  readonly lossyTypes: readonly string[];
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
  const importance = wishes.importance === null ? new Map() : fittingImportance(source, types, wishes.importance);
  const fileType = fileTypes.get(mostCommon(source, types)) ?? null;
  const conversion = await planConversion({ source, types, importance, fileType });
  return {
    conversion,
    isSame: isGguf && source.tensors.every(({ name, type }) => types.get(name) === type),
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
  return isGgufPath(path) ? await openGgufSource(path) : await openCheckpointSource(dirname(path), options, warn);
}

function isGgufPath(path: string): boolean {
  return basename(path) !== "config.json";
}

async function openCheckpointSource(
  folder: string,
  { overrides = {}, tokenizer }: Pick<ModelWishes, "overrides" | "tokenizer">,
  warn: (message: string) => void,
): Promise<ModelSource> {
  const { architecture, files, pairs, tensors, vocabSize } = await openCheckpoint(folder, { overrides });
  const all = new Map<string, TypedValue>([
    ["general.architecture", { type: "string", value: architecture }],
    ["general.name", { type: "string", value: basename(folder) }],
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
  if (fitting.size > 0 || given.size === 0) return fitting;
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

function isRequantized({ name, type }: SourceTensor, types: ReadonlyMap<string, number>): boolean {
  return !floatTypes.has(type) && types.get(name) !== type;
}

function nameOf(type: number): string {
  return tensorTypes.get(type)?.name ?? `type ${type}`;
}
