// Vision part of a checkpoint: the image encoder and its projector in a folder of Hugging Face's format, described as the
// projector file (mmproj) that they would be. An audio encoder of the same model becomes a part of that file, too. Plain data.
// Weights are not read here.
import { join } from "node:path";
import { ServerError } from "../../../../runtime/errors.ts";
import { quote } from "../../gguf/invalid-file.ts";
import { indexFile, readModelTensors } from "../../safetensors/shards.ts";
import type { Checkpoint } from "../checkpoint.ts";
import { Config, isObject, type JsonObject, merged } from "../config.ts";
import { readJsonObject } from "../json-file.ts";
import { Pairs } from "../pairs.ts";
import { resolveQuantisation } from "../quantised/resolve.ts";
import { mapPart } from "../tensor-map.ts";
import { tokenId } from "../tokenizer/source/token-id.ts";
import { gemma4Vision } from "./gemma4.ts";
import { gemma4Squares } from "./gemma4-unified.ts";
import { internvlVision } from "./internvl.ts";
import { llavaNextVision, llavaVision } from "./llava.ts";
import { minicpmVision } from "./minicpm-v.ts";
import { mistral3Vision, pixtralVision } from "./pixtral.ts";
import { qwen2vlVision, qwen3vlVision, qwen25vlVision } from "./qwen-vl.ts";
import { gemma3Vision, idefics3Vision } from "./siglip.ts";
import type { AudioClass, VisionClass, VisionConfigs } from "./vision-class.ts";

export type VisionPart = Pick<Checkpoint, "files" | "pairs" | "tensors">;

const visionClasses: readonly VisionClass[] = [
  ...[gemma3Vision, idefics3Vision, internvlVision, pixtralVision, llavaVision, llavaNextVision],
  ...[mistral3Vision, qwen2vlVision, qwen25vlVision, qwen3vlVision, minicpmVision, gemma4Vision, gemma4Squares],
];
/** Matches the tensor names of the encoder and the projector. A pooling head after the encoder is not used. */
const partOfVision =
  /(?:^|\.)(?:vision_tower|vision_model|vision_embedder|visual|vpm|multi_modal_projector|connector|resampler|embed_vision)\.(?!(?:vision_model\.)?head\.)/;
const partOfAudio = /(?:^|\.)(?:audio_tower|embed_audio)\./;
/** Counts of a component without layers, as in projector files of llama.cpp's converter. */
const noLayers = { feed_forward_length: 0, block_count: 0, "attention.head_count": 0 };
const textEmbedding = /(?:^|\.)embed_tokens\.weight$/;
const configFile = "config.json";
const imageFiles = ["preprocessor_config.json", "processor_config.json"];

/** Whether the config.json of a folder names a class whose vision part can be read. */
export async function hasVisionPart(folder: string, overrides: JsonObject = {}): Promise<boolean> {
  const own = (await readJsonObject(join(folder, configFile))) ?? {};
  return classOf(merged(own, overrides)) !== undefined;
}

/**
 * Reads the configs and the headers of the safetensors in a folder. `tokenizer`: folder or file with the tokenizer. Throws
 * `model_file_invalid`, which names the file and the field, and `unsupported` for a class whose vision part cannot be read.
 */
export async function openVisionPart(
  folder: string,
  overrides: JsonObject = {},
  tokenizer: string = folder,
): Promise<VisionPart> {
  const path = join(folder, configFile);
  const own = await readJsonObject(path);
  if (own === null) throw new ServerError("model_file_invalid", `${path} is missing; name a folder with a model`);
  const whole = merged(own, overrides);
  const found = classOf(whole);
  if (found === undefined || !isObject(whole.vision_config)) throw noVisionPart(path, whole);
  const { rowEnd } = found;
  const rowEndFields = rowEnd === undefined ? {} : { row_end_id: await tokenId(tokenizer, rowEnd) };
  const configs = withFieldsOf(found, {
    model: new Config(path, whole),
    encoder: new Config(path, whole.vision_config, found.defaults).withFields(rowEndFields),
    images: (await readImageConfig(folder)).withFields(found.imageFields ?? {}),
  });
  const audio = audioOf(found, whole, path);
  const model = await readModelTensors(folder, await readJsonObject(join(folder, indexFile)));
  const sources = await resolveQuantisation(model, whole.quantization_config, path);
  const tensors = mapPart(
    { ...found, tensors: { ...found.tensors, ...found.computedTensors?.(configs.encoder) } },
    configs.encoder,
    sources.filter(({ name }) => partOfVision.test(name) || (rowEnd !== undefined && textEmbedding.test(name))),
  );
  const pairs = pairsOf(found, configs, audio !== null);
  const { files } = model;
  if (audio === null) return { files, pairs: pairs.values, tensors };
  const audioSources = sources.filter(({ name }) => partOfAudio.test(name));
  return {
    files,
    pairs: new Map([...pairs.values, ...audioPairs(audio, configs.model.width).values]),
    tensors: [...tensors, ...mapPart(audio.rules, audio.encoder, audioSources)],
  };
}

/** Audio encoder of a checkpoint: its class, and its config. */
interface AudioPart {
  readonly rules: AudioClass;
  readonly encoder: Config;
}

/** Returns the audio encoder of a checkpoint; null if it has none. */
function audioOf({ audio: rules }: VisionClass, { audio_config: fields }: JsonObject, path: string): AudioPart | null {
  return rules && isObject(fields) ? { rules, encoder: new Config(path, fields, rules.defaults) } : null;
}

function classOf({ architectures, vision_config: vision }: JsonObject): VisionClass | undefined {
  const [name] = Array.isArray(architectures) ? architectures : [];
  const type = isObject(vision) ? vision.model_type : undefined;
  return visionClasses.find(({ classes, encoderTypes }) => {
    return classes.includes(name) && (encoderTypes?.some((one) => one === type) ?? true);
  });
}

function withFieldsOf({ encoderFields }: VisionClass, configs: VisionConfigs): VisionConfigs {
  return { ...configs, encoder: configs.encoder.withFields(encoderFields?.(configs) ?? {}) };
}

/** Reads the config of the image preprocessing. Newer processors store it as a field of their own config file. */
async function readImageConfig(folder: string): Promise<Config> {
  for (const name of imageFiles) {
    const path = join(folder, name);
    const fields = await readJsonObject(path);
    if (fields === null) continue;
    return new Config(path, isObject(fields.image_processor) ? fields.image_processor : fields);
  }
  const message = `${join(folder, imageFiles[0] as string)} is missing, which says how images are prepared; fetch the model again`;
  throw new ServerError("model_file_invalid", message);
}

function audioPairs({ rules: { name, addPairs, hasNoLayers }, encoder }: AudioPart, length: number): Pairs {
  const pairs = new Pairs("clip.audio", encoder.path);
  pairs.set("clip.has_audio_encoder", { type: "bool", value: true });
  pairs.text("projector_type", name);
  pairs.counts({
    embedding_length: encoder.width,
    projection_dim: length,
    ...(hasNoLayers ? noLayers : { block_count: encoder.layers, "attention.head_count": encoder.heads }),
  });
  pairs.floats({ "attention.layer_norm_epsilon": encoder.number("rms_norm_eps") });
  addPairs(encoder, pairs);
  return pairs;
}

function pairsOf({ name, addPairs, hasNoLayers }: VisionClass, configs: VisionConfigs, hasAudio: boolean): Pairs {
  const { model, encoder, images } = configs;
  const pairs = new Pairs("clip.vision", model.path);
  // A file with two encoders states the projector of each.
  pairs.set(hasAudio ? "clip.vision.projector_type" : "clip.projector_type", { type: "string", value: name });
  pairs.set("clip.has_vision_encoder", { type: "bool", value: true });
  pairs.counts({
    image_size: encoder.count("image_size"),
    patch_size: encoder.count("patch_size"),
    embedding_length: encoder.width,
    projection_dim: model.width,
    ...(hasNoLayers ? noLayers : layerCounts(encoder)),
  });
  pairs.floats({ "attention.layer_norm_epsilon": encoder.number("layer_norm_eps") });
  for (const [field, other] of [
    ["image_mean", "norm_mean"],
    ["image_std", "norm_std"],
  ] as const) {
    const value = images.numbers(field, 3) ?? images.numbers(other, 3);
    if (value === undefined) throw images.invalid(field, value, "a list of 3 numbers");
    pairs.set(`clip.vision.${field}`, { type: "array", of: "f32", value });
  }
  if (!hasNoLayers) addActivation(encoder, pairs);
  addPairs(configs, pairs);
  return pairs;
}

function layerCounts(encoder: Config): Record<string, number> {
  return {
    feed_forward_length: encoder.count("intermediate_size"),
    block_count: encoder.layers,
    "attention.head_count": encoder.heads,
  };
}

function addActivation(encoder: Config, pairs: Pairs): void {
  const name = encoder.text("hidden_act");
  const key = activationKeys.get(name);
  if (key === undefined) {
    throw encoder.unsupported("vision_config.hidden_act", name, [...activationKeys.keys()].join(", "));
  }
  if (key !== null) pairs.set(key, { type: "bool", value: true });
}

/** Keys of a projector file by activation; null = the default, quick gelu. */
const activationKeys: ReadonlyMap<string | undefined, string | null> = new Map([
  ["gelu", "clip.use_gelu"],
  ["gelu_pytorch_tanh", "clip.use_gelu"],
  ["silu", "clip.use_silu"],
  ["quick_gelu", null],
]);

function noVisionPart(path: string, { architectures }: JsonObject): ServerError {
  const known = [...new Set(visionClasses.flatMap(({ classes }) => classes))].join(", ");
  const message =
    `${path} has the architectures ${quote(String(architectures))}, whose images cannot be read from safetensors; known are ` +
    `${known}: use one of these, or name a projector file with mmproj`;
  return new ServerError("unsupported", message, { param: "kind" });
}
