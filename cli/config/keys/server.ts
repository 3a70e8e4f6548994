// Keys of the HTTP server and of the KV cache. Part of the table in keys.ts.
import type { Key } from "../key.ts";
import {
  apiKeys,
  environmentSwitch,
  file,
  flagSwitch,
  folder,
  fraction,
  httpUrl,
  integer,
  multipleOf,
  oneOf,
  text,
} from "../kinds.ts";
import { memoryBudget } from "../values/memory-budget.ts";

const port = integer(0, 65535);

export const serverKeys = {
  host: { ...text("an address", "ADDRESS"), default: "0.0.0.0", everyday: true, help: "Address to listen on" },
  port: { ...port, default: 1234, alias: "-p", everyday: true, help: "TCP port; 0 = any free port" },
  apiKey: {
    ...apiKeys,
    default: null,
    repeats: true,
    secret: true,
    help: "API key that requests must have (as Bearer token or x-api-key); repeatable; unset, and no api_keys_file = no key is needed; on a shared machine use api_keys_file, because other users can see flags",
  },
  apiKeysFile: {
    ...file,
    default: null,
    help: "File with further API keys, one per line; `#` begins a comment line; read again when it changes",
  },
  noUi: { ...flagSwitch, default: false, help: "Disable the web UI at /ui" },
  mcpPort: { ...port, default: null, help: "TCP port of the MCP server at /mcp; unset = disabled" },
  maxToolRounds: {
    ...integer(0, 256),
    default: null,
    defaultSays: "`256`",
    commands: ["serve", "run"],
    help: "Maximum number of rounds of server tools per request, unless the request sets one",
  },
  toolDispatchUrl: {
    ...httpUrl,
    default: null,
    // The address may contain a password.
    secret: true,
    help: "URL to which calls of the clients' function tools are posted; unset = clients run their own tools",
  },
  disableAccessLog: { ...flagSwitch, default: false, help: "Disable the access log" },
  accessLogFormat: { ...oneOf(["text", "json"]), default: "text", help: "Format of the log" },
  accessLogHealth: { ...flagSwitch, default: false, help: "Include health checks in the access log" },
  disableRequestIdHeader: { ...flagSwitch, default: false, help: "Disable the x-request-id response header" },
  disableMetrics: { ...flagSwitch, default: false, help: "Disable /metrics" },
  allowRuntimeLoraUpdating: {
    ...environmentSwitch,
    default: false,
    environment: "SERVICE_ALLOW_RUNTIME_LORA_UPDATING",
    only: "environment",
    help: "Enable the routes that load and unload LoRA adapters",
  },
  loraAdapterRoot: {
    ...folder,
    default: null,
    environment: "SERVICE_LORA_ADAPTER_ROOT",
    // An empty variable is an error, because a mistake must not give access to the entire disk.
    refusesEmpty: true,
    only: "environment",
    help: "Folder to which adapters loaded by requests are restricted; unset = no restriction",
  },
} as const satisfies Record<string, Key>;

export const pagedAttnKeys = {
  mode: {
    ...oneOf(["auto", "on", "off"]),
    default: "auto",
    flag: "--paged-attn",
    help: "Paged KV cache: one pool of blocks for all sequences (`on`) or an equal share per sequence (`off`); `auto` is `on` if kv_cache or gpu_memory_utilization is set, else the engine's choice",
  },
  gpuMemoryUtilization: {
    ...fraction,
    default: null,
    help: "Fraction of GPU memory for weights and KV cache together; without a GPU, fraction of free main memory for the KV cache; conflicts with kv_cache",
  },
  kvCache: {
    ...memoryBudget,
    default: null,
    help: "Size of the KV cache in bytes or tokens; unset = 25 % of the memory free at load",
  },
  blockSize: {
    ...multipleOf(4, 4, 256),
    default: 32,
    flag: "--pa-block-size",
    help: "Tokens per KV cache block; the llama engine uses blocks only with a paged KV cache",
  },
  cacheType: {
    ...oneOf(["auto", "f16", "bf16", "q8_0", "q4_0", "f32"]),
    default: "auto",
    plannedValues: ["f8e4m3"],
    flag: "--pa-cache-type",
    help: "Data type of the KV cache; `auto` is f16 on the llama engine and bf16 on the wasm engine, which does not support q4_0",
  },
} as const satisfies Record<string, Key>;
