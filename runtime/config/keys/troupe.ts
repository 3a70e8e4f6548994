// Owns the keys that are ours and not the contract's: the engine, the edge, threads, queues and waits. Part of the table in
// keys.ts.
import type { Key } from "../key.ts";
import {
  boolean,
  folder,
  httpUrl,
  integer,
  logLevel,
  milliseconds,
  numberAbove,
  oneOf,
  seconds,
  text,
  texts,
} from "../kinds.ts";
import { byteSize } from "../memory-budget.ts";

export const troupeKeys = {
  engine: {
    ...oneOf(["auto", "llama", "wasm"]),
    default: "auto",
    help: "Engine that runs the models; `auto` is llama where there is a GPU, or a file that wasm does not run, else wasm, and the log says why",
  },
  isolate: {
    ...oneOf(["auto", "true", "false"]),
    default: "auto",
    help: "Run each model in a process of its own; `auto` does so with the llama engine; `false` takes one model on that engine",
  },
  edge: {
    ...oneOf(["auto", "uws", "uws-compat", "node"]),
    default: "auto",
    commands: ["serve"],
    help: "HTTP server underneath: the fastest that loads here, or the one named",
  },
  threads: { ...integer(0, 1024), default: 0, help: "Compute threads of a model; 0 = one per physical core" },
  mmap: { ...boolean, default: true, help: "Map the model file instead of reading it" },
  kvSwap: {
    ...byteSize(0),
    default: 2 ** 30,
    defaultSays: "`1GiB`",
    help: "Main memory for the KV of sequences that had to make room for others; what does not fit is computed again; 0 = none",
  },
  prefixCacheDir: {
    ...folder,
    default: null,
    commands: ["serve", "run"],
    help: "Folder in which the KV of prompts outlives the process; unset = nowhere",
  },
  prefixCacheDisk: {
    ...byteSize(2 ** 20),
    default: 4 * 2 ** 30,
    defaultSays: "`4GiB`",
    commands: ["serve", "run"],
    help: "Most bytes of the files in prefix_cache_dir",
  },
  stateDir: {
    ...text("a folder, or none", "DIR|none"),
    default: null,
    defaultSays: "`troupe` in `$XDG_STATE_HOME`, or in `~/.local/state`",
    commands: ["serve"],
    help: "Folder of what outlives the server, such as stored responses; servers of one machine may share it; `none`: in memory",
  },
  maxStoredResponses: {
    ...integer(1),
    default: 1000,
    commands: ["serve"],
    help: "Most responses that are kept; the client with most of them gives up its oldest first",
  },
  storedResponseDays: {
    ...integer(1, 36_500),
    default: 30,
    commands: ["serve"],
    help: "Days after which a response is not kept any more",
  },
  storedResponsesDisk: {
    ...byteSize(2 ** 20),
    default: 2 ** 30,
    defaultSays: "`1GiB`",
    commands: ["serve"],
    help: "Most bytes of all responses that are kept",
  },
  maxBackgroundResponses: {
    ...integer(1, 4096),
    default: 64,
    commands: ["serve"],
    help: "Most responses generated in the background at once",
  },
  speculation: {
    ...oneOf(["auto", "off"]),
    default: "auto",
    help: "Whether tokens are drafted ahead and verified, where that is quicker; answers do not depend on it",
  },
  maxDraftTokens: { ...integer(1, 64), default: 16, help: "Most tokens drafted ahead of a sequence in one step" },
  draftModel: {
    ...text("a model", "MODEL"),
    default: null,
    help: "Smaller model with the same vocabulary that drafts; without one, what has been said before is drafted again",
  },
  maxQueue: { ...integer(1), default: 512, commands: ["serve"], help: "Most requests waiting for a model" },
  queueTimeoutSecs: {
    ...seconds(0),
    default: 0,
    commands: ["serve"],
    help: "Longest a request may wait for its model; 0 = as long as its client does",
  },
  maxBodyBytesInFlight: {
    ...integer(2 ** 20),
    default: 400 * 2 ** 20,
    commands: ["serve"],
    help: "Most bytes of request bodies held at once",
  },
  decodeSlowdown: {
    ...numberAbove(1),
    default: 3,
    help: "How many times longer a step of running sequences may take when prompts join it",
  },
  maxStepMs: {
    ...integer(1),
    default: 280,
    help: "Longest step with a prompt in it, which new requests wait for, where decode_slowdown allows less; a lone prompt may take two to end in one",
  },
  frameIntervalMs: {
    ...integer(0),
    default: 40,
    commands: ["serve"],
    help: "How long tokens of short steps may wait to be sent together; 0 = each at once",
  },
  maxLoadedModels: {
    ...integer(1),
    default: null,
    commands: ["serve"],
    help: "Most models in memory; the one that has rested longest makes room for one that is asked for; unset = all",
  },
  idleUnloadSecs: {
    ...seconds(0),
    default: 0,
    commands: ["serve"],
    help: "A model that nobody asks anything for so long is unloaded until somebody does; 0 = never",
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
  otlpEndpoint: {
    ...httpUrl,
    default: null,
    // It may hold a password.
    secret: true,
    environment: "OTEL_EXPORTER_OTLP_ENDPOINT",
    commands: ["serve"],
    help: "OpenTelemetry collector that traces of requests are sent to, by OTLP over HTTP; unset = none are made",
  },
  mcpAllowedHosts: {
    ...texts("a host name", "HOST"),
    default: null,
    repeats: true,
    commands: ["serve"],
    help: "Name the MCP server goes by besides those of this machine; its pages may use it",
  },
  mcpMaxSessions: {
    ...integer(1, 1_000_000),
    default: 1000,
    commands: ["serve"],
    help: "Most sessions of the MCP server; the one that has rested longest makes room",
  },
  mcpSessionIdleSecs: {
    ...seconds(1),
    default: 1800,
    commands: ["serve"],
    help: "A session of the MCP server that nobody uses for so long is ended",
  },
  logLevel: {
    ...logLevel,
    default: "info",
    // Lines of a log would stand between those of a conversation.
    defaultOf: { run: "warn" },
    environment: "RUST_LOG",
    help: "Least severe level that is logged; -v is debug, -vv trace",
  },
} as const satisfies Record<string, Key>;
