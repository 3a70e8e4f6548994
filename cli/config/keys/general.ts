// General keys: sampling, batching, prefix cache, chat template, MTP, and the flags of the run command. Part of the table in
// keys.ts. The general keys of server-side tools are in agentic.ts.
import { defaultStepLimits } from "../../../engines/decoding/scheduler/limits.ts";
import { type Key, neverBuilt } from "../key.ts";
import { boolean, file, flagSwitch, folder, integer, oneOf, text, texts, tokenCount, tokenSource } from "../kinds.ts";

export const generalKeys = {
  defaultModelId: {
    ...text("the alias or model_id of one of the models", "ID"),
    default: null,
    commands: ["serve"],
    help: "Model for requests that name no model or `default`; default: the first model",
  },
  seed: { ...integer(0, 2 ** 32 - 1), default: null, help: "Sampling seed of requests without `seed`; unset = random" },
  log: {
    ...file,
    default: null,
    alias: "-l",
    commands: ["serve", "run"],
    help: "File to which each inference request and its response are written in full, as JSON lines",
  },
  tokenSource: {
    ...tokenSource,
    default: "cache",
    secret: true,
    help: "Source of the model hub's access token; `cache` is the token stored by `login`",
  },
  maxSeqs: {
    ...integer(1, 4096),
    default: 32,
    defaultOf: { run: 1 },
    everyday: true,
    help: "Maximum number of sequences that run at once (slots)",
  },
  maxNumBatchedTokens: {
    ...tokenCount(1, 1_048_576),
    default: 4096,
    help: "Maximum number of tokens in one forward pass, and of one text for an encoder",
  },
  maxPrefillChunkTokens: {
    ...tokenCount(1),
    default: defaultStepLimits.maxPrefillChunkTokens,
    help: "Maximum number of tokens of one prompt in one forward pass (chunked prefill)",
  },
  maxDecodeStepsBeforePrefill: {
    ...integer(1),
    default: defaultStepLimits.maxDecodeStepsBeforePrefill,
    help: "Maximum number of consecutive decode-only steps while a prompt waits for prefill",
  },
  noKvCache: {
    ...flagSwitch,
    ...neverBuilt("has no meaning with continuous batching: every sequence needs its KV cache", false),
    default: false,
    help: "Disable the KV cache",
  },
  prefixCacheN: {
    ...integer(0, 1024),
    default: null,
    defaultSays: "the larger of 16 and `max_seqs`",
    help: "Maximum number of finished sequences kept in the prefix cache; 0 = disabled",
  },
  thinking: {
    ...boolean,
    default: null,
    otherNames: ["enable_thinking"],
    commands: ["run"],
    everyday: true,
    help: "Reasoning before the answer; enabled if neither this nor --reasoning-effort is set",
  },
  reasoningEffort: {
    ...oneOf(["off", "low", "medium", "high", "xhigh"], { none: "off" }),
    default: null,
    commands: ["run"],
    help: "Amount of reasoning before the answer; `none` is the same as `off`",
  },
  adapter: {
    ...text("the alias of a LoRA adapter", "ALIAS"),
    default: null,
    commands: ["run", "bench"],
    help: "LoRA adapter to start with; unset = base model",
  },
  chatTemplate: {
    ...text("a path of a .jinja or .json file", "FILE"),
    default: null,
    alias: "-c",
    help: "Chat template that replaces the one in the model file",
  },
  jinjaExplicit: {
    ...text("a path of a .jinja file", "FILE"),
    default: null,
    alias: "-j",
    help: "Chat template that overrides all others",
  },
  matformerConfigPath: {
    ...text("a path of a .csv or .json file", "FILE"),
    default: null,
    help: "Table of the slices of a MatFormer model in safetensors (Gemma 3n)",
  },
  matformerSliceName: {
    ...text("the name of a slice", "NAME"),
    default: null,
    help: "Slice of a MatFormer model to load; needs matformer_config_path",
  },
  mtpModel: {
    ...text("a model", "MODEL"),
    default: null,
    help: "Separate file with the MTP (multi-token prediction) layers of the model, used for speculative decoding",
  },
  mtpNPredict: {
    ...integer(1, 64),
    default: null,
    help: "Number of tokens drafted per step with the MTP layers of mtp_model or of the model itself; unset = as many as the layers were trained for",
  },
  mtpDraftSampling: {
    ...oneOf(["auto", "greedy", "probabilistic"]),
    default: "auto",
    help: "Draft selection with MTP: the most likely token or a sampled one; `auto` follows the sampling of the request",
  },
} as const satisfies Record<string, Key>;

const media = { ...texts("a path of a file", "FILE"), default: null, repeats: true } as const;

export const runKeys = {
  input: {
    ...text("a prompt", "TEXT"),
    default: null,
    alias: "-i",
    everyday: true,
    help: "Answer this prompt and exit",
  },
  system: {
    ...text("a system prompt", "TEXT"),
    default: null,
    everyday: true,
    help: "System prompt of the conversation",
  },
  maxTokens: {
    ...integer(1),
    default: null,
    help: "Maximum number of tokens of one answer; unset = default_max_tokens",
  },
  folder: {
    ...folder,
    default: null,
    defaultSays: "the current folder",
    help: "Folder in which the agent works; its tools read and write the files there",
  },
  yes: { ...flagSwitch, default: false, help: "Run all calls of tools without asking" },
  json: {
    ...flagSwitch,
    default: false,
    commands: ["run", "bench", "tune"],
    everyday: true,
    help: "Print JSON: the results of bench or tune, or what the agent does, one event a line",
  },
  continueLast: {
    ...flagSwitch,
    default: false,
    flag: "--continue",
    help: "Continue the last session of the folder",
  },
  session: {
    ...text("the id of a session of this machine", "ID"),
    default: null,
    help: "Session to continue; the agent names it at its end",
  },
  image: {
    ...media,
    help: "Image for the prompt of --input; needs a model that takes images (mmproj, or kind multimodal)",
  },
  video: {
    ...media,
    help: "Video for the prompt of --input; needs a model that takes images (mmproj, or kind multimodal)",
  },
  audio: { ...media, help: "Audio for the prompt of --input; needs a model with an audio projector (mmproj)" },
} as const satisfies Record<string, Key>;
