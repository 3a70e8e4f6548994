// UQFF plan: turns a checkpoint and the user's settings into the conversions that write its weights in UQFF. Matrices keep the names and
// the row order of the checkpoint. Stacks of experts get the names that mistral.rs uses.
import { dirname } from "node:path";
import { ServerError } from "../../../runtime/errors.ts";
import { openCheckpoint } from "../../files/checkpoint/checkpoint.ts";
import type { SourceTensor as CheckpointTensor, TensorRecipe } from "../../files/checkpoint/tensor-map.ts";
import { tensorTypes } from "../../files/gguf/tensors.ts";
import { type HeadTensor, tensorByteLength } from "../../files/gguf/writer.ts";
import { formatOf } from "../../files/model-format.ts";
import {
  bytesTensor,
  type HeadEntry,
  type SmallTensor,
  safetensorsHead,
  wordsTensor,
} from "../../files/safetensors/writer.ts";
import { blockTypes } from "../../files/uqff/layers.ts";
import { isUqff, residualFile } from "../../files/uqff/names.ts";
import { uqffVersion, versionNames } from "../../files/uqff/uqff-files.ts";
import { planTypes } from "../plan/types.ts";
import { type Conversion, type FileHead, planFile } from "./conversion.ts";
import type { SourceTensor } from "./model-source.ts";
import { fittingImportance, type ModelOptions, refuseUnusedOptions, warnOfTypes } from "./plan-model.ts";

export interface PlannedUqff {
  /** Conversions by file name: the shards, and residual.safetensors. */
  readonly files: ReadonlyMap<string, Conversion>;
  readonly layers: readonly PlannedLayer[];
}

/** A matrix in a shard. */
export interface PlannedLayer {
  /** Name of the matrix without its suffix. */
  readonly key: string;
  readonly format: keyof typeof formatNumbers;
  /** Name of the number type. */
  readonly typeName: string;
  /** Dimensions, columns last. */
  readonly shape: readonly number[];
}

/** Maximum size of a shard in bytes, as in mistral.rs. */
const maxShardBytes = 10 * 2 ** 30;
const floatNames: Readonly<Record<number, string>> = { 0: "F32", 1: "F16", 30: "BF16" };
const formatNumbers = { gguf: 0, unquant: 1 } as const;
const expertStack = /\.ffn_(gate|up|down)_exps\.weight$/;

/** A tensor to write, and the name of the GGUF tensor that determines its type. */
interface Part {
  readonly tensor: SourceTensor;
  readonly type: number;
  /** Name of the tensor in a GGUF file, by which the importance refers to it. */
  readonly ggufName: string;
}

/**
 * Plans the files of the checkpoint at `path` (config.json, or a UQFF file). `stem`: name of the shards. Reads no weights. Throws the same
 * errors as planModel, `unsupported` for a level that UQFF does not have, and `config_invalid` for a slice of a MatFormer model, which
 * would not fit the config.json in the same folder.
 */
export async function planUqff(
  path: string,
  options: ModelOptions,
  {
    stem,
    producer,
    warn,
  }: { readonly stem: string; readonly producer: string; readonly warn: (message: string) => void },
): Promise<PlannedUqff> {
  const uqff = isUqff(path) ? path : null;
  const { overrides, architecture: named, slice } = options;
  refuseUnusedOptions(path, await formatOf(path), options);
  if (slice !== null) throw noSlice(slice.name);
  const { architecture, files, tensors } = await openCheckpoint(dirname(path), {
    overrides,
    architecture: named,
    uqff,
  });
  const planned = tensors.map(({ name, shape, storedType, isMatrix, rows }) => {
    return { name, shape, type: storedType, isMatrix, values: rows };
  });
  const types = planTypes(planned, options);
  warnOfTypes(planned, types, options, warn);
  const pairs = new Map([["general.architecture", { type: "string", value: architecture } as const]]);
  const given =
    options.importance === null ? new Map() : fittingImportance({ pairs, tensors: planned }, types, options.importance);
  const { layers, residual } = partsOf(tensors, types);
  const metadata = { "uqff.producer": producer, "uqff.version": Object.values(uqffVersion).join(".") };
  const made = new Map<string, Conversion>();
  for (const [i, shard] of shardsOf(layers).entries()) {
    const importance = new Map(shard.flatMap(({ tensor, ggufName }) => importanceOf(tensor, given.get(ggufName))));
    const head = (entries: readonly HeadTensor[]) => shardHead(entries, i === 0, metadata);
    made.set(`${stem}-${i}.uqff`, await planFile({ files, ...targetsOf(shard), importance, head }));
  }
  const head = (entries: readonly HeadTensor[]) => plainHead(entries, metadata);
  made.set(residualFile, await planFile({ files, ...targetsOf(residual), importance: new Map(), head }));
  return { files: made, layers: layers.filter(({ tensor }) => tensor.isMatrix).map(layerOf) };
}

function noSlice(name: string): ServerError {
  const message = `matformer_slice_name: UQFF is written of whole models, not of the slice ${JSON.stringify(name)}; write a .gguf file, or remove the setting`;
  return new ServerError("config_invalid", message, { param: "matformer_slice_name" });
}

interface Parts {
  /** Matrices, each followed by its bias. */
  readonly layers: readonly Part[];
  readonly residual: readonly Part[];
}

function partsOf(recipes: readonly TensorRecipe[], types: ReadonlyMap<string, number>): Parts {
  const matrices = new Map<string, Part>();
  const used = new Set<string>();
  for (const recipe of recipes) {
    for (const part of recipe.isMatrix ? layersOf(recipe, types.get(recipe.name) ?? recipe.storedType) : []) {
      if (!matrices.has(part.tensor.name)) matrices.set(part.tensor.name, part);
      for (const { name } of recipe.from) used.add(name);
    }
  }
  const layers = new Map([...matrices.values()].map((part) => [part.tensor.name, [part]]));
  const residual: Part[] = [];
  const rest = new Map(recipes.flatMap(({ name, from }) => from.map((tensor) => [tensor.name, { name, tensor }])));
  for (const { name: ggufName, tensor } of rest.values()) {
    if (used.has(tensor.name)) continue;
    const part = plainPart(tensor, ggufName);
    const owner = layers.get(tensor.name.replace(/\.bias$/, ".weight"));
    (tensor.name.endsWith(".bias") && owner ? owner : residual).push(part);
  }
  return { layers: [...layers.values()].flat(), residual };
}

/** Returns the matrices in a shard that correspond to a GGUF tensor; none if the checkpoint's tensors have rows of another length. */
function layersOf(recipe: TensorRecipe, type: number): Part[] {
  const { name, shape, rows, from } = recipe;
  checkType(name, type);
  const [, projection] = expertStack.exec(name) ?? [];
  const prefix = from[0]?.name.replace(/^(.*\.experts)\..*$/, "$1") ?? "";
  if (projection !== undefined && prefix.endsWith(".experts")) {
    const tensor = {
      name: `${prefix}.${projection}_proj.weight`,
      shape,
      type: recipe.storedType,
      isMatrix: true,
      values: rows,
    };
    return [{ tensor, type, ggufName: name }];
  }
  if (from.some((one) => one.shape[0] !== shape[0] || one.shape.length < 2)) return [];
  return from.map((one) => ({ ...plainPart(one, name), type, tensor: { ...sourceOf(one), isMatrix: true } }));
}

/** Returns a tensor that is not quantized. Numbers other than 16-bit and 32-bit floats become F32. */
function plainPart(tensor: CheckpointTensor, ggufName: string): Part {
  const type = floatNames[tensor.storedType] === undefined ? 0 : tensor.storedType;
  return { tensor: sourceOf(tensor), type, ggufName };
}

function sourceOf({ name, shape, storedType, rows }: CheckpointTensor): SourceTensor {
  return { name, shape, type: storedType, isMatrix: false, values: rows };
}

function checkType(name: string, type: number): void {
  if (blockTypes.has(type)) return;
  const known = [...blockTypes].map((one) => tensorTypes.get(one)?.name).join(", ");
  const message = `UQFF has no ${tensorTypes.get(type)?.name ?? type}, which "${name}" would get; choose a level of ${known}, or write a .gguf file`;
  throw new ServerError("unsupported", message, { param: "isq" });
}

function targetsOf(parts: readonly Part[]): { tensors: readonly SourceTensor[]; types: ReadonlyMap<string, number> } {
  return {
    tensors: parts.map(({ tensor }) => tensor),
    types: new Map(parts.map(({ tensor, type }) => [tensor.name, type])),
  };
}

/** Returns the importance of a tensor's columns. Importance belongs to a whole GGUF tensor, so a part of a stack gets none. */
function importanceOf(
  { name, shape, isMatrix }: SourceTensor,
  weights: Float32Array | undefined,
): [string, Float32Array][] {
  const [columns = 1, , matrices = 1] = shape;
  return isMatrix && weights?.length === columns * matrices ? [[name, weights]] : [];
}

function shardsOf(parts: readonly Part[]): Part[][] {
  const shards: Part[][] = [[]];
  let bytes = 0;
  for (const part of parts) {
    const size = tensorByteLength(part.type, part.tensor.shape);
    if (bytes > 0 && bytes + size > maxShardBytes) {
      shards.push([]);
      bytes = 0;
    }
    shards.at(-1)?.push(part);
    bytes += size;
  }
  return shards;
}

function layerOf({ tensor, type }: Part): PlannedLayer {
  const { name, blockLength = 1 } = tensorTypes.get(type) ?? { name: "" };
  const format = blockLength === 1 ? "unquant" : "gguf";
  return { key: keyOf(tensor.name), format, typeName: name, shape: tensor.shape.toReversed() };
}

function keyOf(name: string): string {
  return name.replace(/\.weight$/, "");
}

function shardHead(
  tensors: readonly HeadTensor[],
  isFirst: boolean,
  metadata: Readonly<Record<string, string>>,
): FileHead {
  const versions = isFirst
    ? Object.values(uqffVersion).map((part, i) => wordsTensor(versionNames[i] as string, part))
    : [];
  const small: SmallTensor[] = [...versions];
  const entries = tensors.map((tensor): HeadEntry => {
    const { name, type, shape } = tensor;
    const isBias = name.endsWith(".bias");
    const weight = `${keyOf(name)}.weight`;
    const isFloat = floatNames[type] !== undefined;
    if (!isBias) small.push(bytesTensor(`${weight}.format`, isFloat ? formatNumbers.unquant : formatNumbers.gguf));
    if (isFloat) return plainEntry(isBias ? tensor : { ...tensor, name: weight });
    small.push(wordsTensor(`${weight}.dtype`, type), wordsTensor(`${weight}.shape`, shape.toReversed()));
    const bytes = tensorByteLength(type, shape);
    return { name: weight, type: "U8", shape: [bytes], bytes };
  });
  return safetensorsHead(entries, small, metadata);
}

function plainHead(tensors: readonly HeadTensor[], metadata: Readonly<Record<string, string>>): FileHead {
  return safetensorsHead(tensors.map(plainEntry), [], metadata);
}

function plainEntry({ name, type, shape }: HeadTensor): HeadEntry {
  return { name, type: floatNames[type] ?? "F32", shape: shape.toReversed(), bytes: tensorByteLength(type, shape) };
}
