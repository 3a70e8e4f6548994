// Owns the general keys: sampling, the limits of a step, the chat template, and what the run command answers with. Part of
// the table in keys.ts; agentic keys, which are general too, stand in agentic.ts.
import { type Key, neverBuilt, planned } from "../key.ts";
import { boolean, file, flagSwitch, integer, oneOf, text, texts, tokenSource } from "../kinds.ts";

export const generalKeys = {
  defaultModelId: {
    ...text("the model_id of one of the models", "ID"),
    default: null,
    commands: ["serve"],
    help: "Model that answers requests naming none or `default`; else the first one",
  },
  seed: { ...integer(0, 2 ** 32 - 1), default: null, help: "Sampling seed of requests that bring none; else random" },
  log: {
    ...file,
    default: null,
    alias: "-l",
    commands: ["serve", "run"],
    help: "File that each request for inference and its answer are written to, in full, as JSON lines",
  },
  tokenSource: {
    ...tokenSource,
    default: "cache",
    secret: true,
    help: "Where the token of the model hub comes from; `cache` is the one `login` stored",
  },
  maxSeqs: {
    ...integer(1, 4096),
    default: 32,
    defaultOf: { run: 1 },
    help: "Most sequences generated at the same time",
  },
  maxNumBatchedTokens: {
    ...integer(1, 1_048_576),
    default: 4096,
    help: "Most tokens in one forward pass; an encoder takes no longer text",
  },
  maxPrefillChunkTokens: { ...integer(1), default: 512, help: "Most tokens of one prompt in one forward pass" },
  maxDecodeStepsBeforePrefill: {
    ...integer(1),
    default: 8,
    help: "Most steps that only decode while a prompt waits",
  },
  noKvCache: {
    ...flagSwitch,
    ...neverBuilt(
      "has no meaning in a batched engine: sequences share passes because each keeps what is computed",
      false,
    ),
    default: false,
    help: "Compute without a KV cache",
  },
  prefixCacheN: {
    ...integer(0, 1024),
    default: 16,
    help: "Ended sequences whose KV is kept for those that begin alike; 0 = none",
  },
  thinking: {
    ...boolean,
    default: null,
    otherNames: ["enable_thinking"],
    commands: ["run"],
    help: "Whether the model thinks before it answers; on where neither this nor --reasoning-effort is given",
  },
  reasoningEffort: {
    ...oneOf(["off", "low", "medium", "high", "xhigh"], { none: "off" }),
    default: null,
    commands: ["run"],
    help: "How much the model thinks before it answers; `none` is `off`",
  },
  adapter: {
    ...text("the alias of a LoRA adapter", "ALIAS"),
    default: null,
    commands: ["run", "bench"],
    help: "LoRA adapter to begin with; else the base model",
  },
  chatTemplate: {
    ...text("a path of a .jinja or .json file", "FILE"),
    default: null,
    alias: "-c",
    help: "Chat template, instead of the one in the model file",
  },
  jinjaExplicit: {
    ...text("a path of a .jinja file", "FILE"),
    default: null,
    alias: "-j",
    help: "Chat template that wins over any other",
  },
  matformerConfigPath: {
    ...text("a path of a .csv or .json file", "FILE"),
    ...planned(),
    default: null,
    help: "Slices of a nested (Matformer) model",
  },
  matformerSliceName: {
    ...text("the name of a slice", "NAME"),
    ...planned(),
    default: null,
    help: "Slice of a nested model to load; needs matformer_config_path",
  },
  mtpModel: {
    ...text("a model", "MODEL"),
    default: null,
    help: "Assistant made for the model, which predicts several of its tokens at once",
  },
  mtpNPredict: {
    ...integer(1, 64),
    default: null,
    help: "Tokens that mtp_model, or the model's own prediction heads, draft for each step",
  },
  mtpDraftSampling: {
    ...oneOf(["auto", "greedy", "probabilistic"]),
    default: "auto",
    help: "Draft the likeliest tokens, or those that would be drawn; auto: as answers are",
  },
} as const satisfies Record<string, Key>;

const media = { ...texts("a path of a file", "FILE"), ...planned(), default: null, repeats: true } as const;

export const runKeys = {
  input: { ...text("a prompt", "TEXT"), default: null, alias: "-i", help: "Answer this prompt and exit" },
  image: { ...media, help: "Image that belongs to the prompt of --input" },
  video: { ...media, help: "Video that belongs to the prompt of --input" },
  audio: { ...media, help: "Sound that belongs to the prompt of --input" },
} as const satisfies Record<string, Key>;
