// Checkpoint: a model in a folder of Hugging Face's format (config.json and safetensors), described as the GGUF file to which it would be
// converted. Plain data that can be sent to threads. Weights are not read here.
import { join } from "node:path";
import { ServerError } from "../../../runtime/errors.ts";
import { multiVectorKey, promptsKey } from "../embedding-rules.ts";
import { quote } from "../gguf/invalid-file.ts";
import type { TypedValue } from "../gguf/typed-value.ts";
import { indexFile, type ModelTensors, readModelTensors } from "../safetensors/shards.ts";
import { readUqff } from "../uqff/uqff-files.ts";
import type { CheckpointArchitecture } from "./architectures/architecture.ts";
import { architectureNamed } from "./architectures/named-architecture.ts";
import { architectureFor, knownClasses } from "./architectures/registry.ts";
import { Config, isObject, type JsonObject, merged } from "./config.ts";
import { denseLayers } from "./embedding/dense.ts";
import { readMultiVector, readPrompts } from "./embedding/embedding-config.ts";
import { type EmbeddingModules, noModules, readModules } from "./embedding/modules.ts";
import { addSampling } from "./generation.ts";
import { addHyperparameters } from "./hyperparameters.ts";
import { readJsonObject } from "./json-file.ts";
import { slicedFields, slicedTensors } from "./matformer/apply-slice.ts";
import type { MatformerSlice } from "./matformer/slice-file.ts";
import { Pairs } from "./pairs.ts";
import { resolveQuantisation } from "./quantised/resolve.ts";
import { uqffArchitecture, uqffTensors } from "./quantised/uqff.ts";
import { mapTensors, type SourceTensor, type TensorRecipe } from "./tensor-map.ts";

export interface Checkpoint {
  /** Value of the GGUF key general.architecture. */
  readonly architecture: string;
  /** Paths of the files with weights; row sources refer to them by index. */
  readonly files: readonly string[];
  /**
   * GGUF key/value pairs, without general.architecture, general.name, general.file_type and the keys that are read from tokenizer files.
   */
  readonly pairs: ReadonlyMap<string, TypedValue>;
  readonly tensors: readonly TensorRecipe[];
  /** Number of rows of the token embedding. The vocabulary of the GGUF file must have as many tokens. */
  readonly vocabSize: number;
  /** Notes for the user about how the engines compute the model. */
  readonly notes: readonly string[];
}

export interface CheckpointOptions {
  /** Changes of config.json (`hf_overrides`), merged into it field by field, nested objects included. */
  readonly overrides?: JsonObject | undefined;
  /** Smaller model to extract from a MatFormer model; null = the whole model. */
  readonly slice?: MatformerSlice | null;
  /** Name of the architecture, in place of the class in config.json (named-architecture.ts). */
  readonly architecture?: string | null;
  /** Path of the first shard of the weights in UQFF; null or absent = the weights are in safetensors. */
  readonly uqff?: string | null;
}

/**
 * Reads config.json, generation_config.json, the index and the headers of the safetensors in a folder. Throws `model_file_invalid`, which
 * names the file and the field, and `unsupported`, which names the part that no engine computes.
 */
export async function openCheckpoint(
  folder: string,
  { overrides = {}, slice = null, architecture: named = null, uqff = null }: CheckpointOptions = {},
): Promise<Checkpoint> {
  const path = join(folder, "config.json");
  const own = await readJsonObject(path);
  if (own === null) {
    throw new ServerError("model_file_invalid", `${path} is missing; name a folder with a model, or a .gguf file`);
  }
  const whole = merged(own, overrides);
  const given = new Config(path, whole);
  const architecture = named === null ? findArchitecture(given, whole) : architectureNamed(named, given);
  const { defaults, computedDefaults } = architecture;
  const full = given.withDefaults({ ...defaults, ...computedDefaults?.(given) });
  if (slice !== null && !architecture.hasSlices) throw noSlices(architecture, full);
  const config = slice === null ? full : full.withFields(slicedFields(slice, full));
  const modules = architecture.pools ? await readModules(folder) : noModules;
  const isMultiVector = architecture.isMultiVector === true || modules.isMultiVector;
  const pairs = await readPairs(folder, architecture, config, modules);
  if (isMultiVector) {
    const rules = await readMultiVector(folder, architecture.isMultiVector === true);
    pairs.set(multiVectorKey, { type: "string", value: JSON.stringify(rules) });
  } else if (architecture.pools && !architecture.adaptsByTask && !modules.excludesPrompt)
    await addPrompts(folder, pairs);
  const quantisation = whole.quantization_config ?? given.value("quantization_config", "compression_config");
  const { model, sources } = uqff === null ? await readStored(folder, quantisation) : await readLayers(uqff);
  const taken = slice === null ? sources : slicedTensors(slice, full, sources);
  const tensors = mapTensors(uqff === null ? architecture : uqffArchitecture(architecture, config), config, taken);
  const embedding = tensors.find(({ name }) => name === "token_embd.weight");
  const [columns, vocabSize = 1] = embedding?.shape ?? [];
  if (columns !== config.width) throw config.invalid("hidden_size", config.width, `${columns}, as the embedding has`);
  const dense = denseLayers(modules.dense, isMultiVector ? 1 : 2, model.files.length, pairs);
  return {
    architecture: architecture.name,
    files: [...model.files, ...dense.files],
    pairs: pairs.values,
    tensors: [...tensors, ...dense.tensors],
    vocabSize,
    notes: architecture.notes?.(config) ?? [],
  };
}

function noSlices({ name }: CheckpointArchitecture, { path }: Config): ServerError {
  return new ServerError(
    "unsupported",
    `matformer_slice_name expects a MatFormer model (Gemma 3n); ${path} has the architecture ${name}: remove the setting`,
    { param: "matformer_slice_name" },
  );
}

interface Sources {
  readonly model: ModelTensors;
  readonly sources: readonly SourceTensor[];
}

async function readStored(folder: string, quantisation: unknown): Promise<Sources> {
  const model = await readModelTensors(folder, await readJsonObject(join(folder, indexFile)));
  return { model, sources: await resolveQuantisation(model, quantisation, join(folder, "config.json")) };
}

async function readLayers(uqff: string): Promise<Sources> {
  const model = await readUqff(uqff);
  return { model, sources: uqffTensors(model) };
}

/**
 * Returns the class in the config.json of a folder if it cannot be loaded from safetensors; null if it can, or if there is no config.json.
 * Reads no weights.
 */
export async function unknownClass(folder: string): Promise<string | null> {
  const path = join(folder, "config.json");
  const whole = await readJsonObject(path);
  if (whole === null) return null;
  const config = new Config(path, whole);
  const name = classOf(config, whole);
  return architectureFor(name, config) === undefined ? name : null;
}

/** Returns the class of the model: a known one if config.json names one. */
function classOf(config: Config, whole: JsonObject): string {
  // Models with image or audio input may name the class of their text model in its nested config.
  const nested = isObject(whole.text_config) ? whole.text_config.architectures : undefined;
  const names = [whole.architectures, nested].filter(Array.isArray).map(([first]) => first as unknown);
  const known = names.find((name) => typeof name === "string" && architectureFor(name, config) !== undefined);
  const name = known ?? names.at(-1);
  if (typeof name === "string") return name;
  throw config.invalid("architectures", whole.architectures, "a list with the name of a class");
}

function findArchitecture(config: Config, whole: JsonObject): CheckpointArchitecture {
  const name = classOf(config, whole);
  const found = architectureFor(name, config);
  if (found) return found;
  throw new ServerError(
    "unsupported",
    `${config.path} has the architecture ${quote(name)}, which cannot be loaded from safetensors; known are ` +
      `${knownClasses().join(", ")}: use one of these, or a GGUF file of the model with --engine llama`,
    { param: "architectures" },
  );
}

async function readPairs(
  folder: string,
  { name, addPairs, hasDenseLayers = false }: CheckpointArchitecture,
  config: Config,
  { pooling, dense, isMultiVector }: EmbeddingModules,
): Promise<Pairs> {
  const pairs = new Pairs(name, config.path);
  addHyperparameters(config, pairs);
  addPairs?.(config, pairs);
  addSampling((await readJsonObject(join(folder, "generation_config.json"))) ?? {}, pairs);
  if (pooling !== null) pairs.counts({ pooling_type: pooling });
  if (dense.length > 0 && !hasDenseLayers && !isMultiVector) {
    throw config.unsupported("modules.json", "Dense", "dense layers behind EmbeddingGemma and ColBERT only");
  }
  return pairs;
}

async function addPrompts(folder: string, pairs: Pairs): Promise<void> {
  const prompts = await readPrompts(folder);
  if (prompts !== null) pairs.set(promptsKey, { type: "string", value: JSON.stringify(prompts) });
}
