// Owns the keys of the HTTP server and of the memory its models compute in. Part of the table in keys.ts.
import { type Key, planned } from "../key.ts";
import { environmentSwitch, flagSwitch, folder, fraction, integer, multipleOf, oneOf, text } from "../kinds.ts";
import { memoryBudget } from "../memory-budget.ts";

const port = integer(0, 65535);

export const serverKeys = {
  host: { ...text("an address", "ADDRESS"), default: "0.0.0.0", help: "Address to listen on" },
  port: { ...port, default: 1234, alias: "-p", help: "TCP port; 0 takes any free one" },
  noUi: { ...flagSwitch, ...planned(true), default: false, help: "Serve no web UI at /ui" },
  mcpPort: { ...port, default: null, help: "TCP port of an MCP server that offers the models, at /mcp" },
  maxToolRounds: { ...integer(0), ...planned(), default: null, help: "Most rounds of tool calls of a request" },
  toolDispatchUrl: {
    ...text("a URL", "URL"),
    ...planned(),
    default: null,
    help: "URL that tool calls are posted to",
  },
  disableAccessLog: { ...flagSwitch, default: false, help: "Do not log requests" },
  accessLogFormat: { ...oneOf(["text", "json"]), default: "text", help: "How a request is logged" },
  accessLogHealth: { ...flagSwitch, default: false, help: "Log health checks and the like too" },
  disableRequestIdHeader: { ...flagSwitch, default: false, help: "Do not echo the x-request-id header" },
  disableMetrics: { ...flagSwitch, default: false, help: "Serve no metrics" },
  allowRuntimeLoraUpdating: {
    ...environmentSwitch,
    default: false,
    environment: "SERVICE_ALLOW_RUNTIME_LORA_UPDATING",
    only: "environment",
    help: "Allow requests to load and unload LoRA adapters",
  },
  loraAdapterRoot: {
    ...folder,
    default: null,
    environment: "SERVICE_LORA_ADAPTER_ROOT",
    // A variable that came out empty by mistake must not open the whole disk.
    refusesEmpty: true,
    only: "environment",
    help: "Folder that adapters which requests load must lie in; unset = any",
  },
} as const satisfies Record<string, Key>;

export const pagedAttnKeys = {
  mode: {
    ...oneOf(["auto", "on", "off"]),
    default: "auto",
    flag: "--paged-attn",
    help: "Whether all sequences take their KV cache from one pool (on) or each has an equal share of it (off); `auto` is `on` where the amount of memory is set, else the engine's choice",
  },
  gpuMemoryUtilization: {
    ...fraction,
    default: null,
    help: "Part of the GPU's memory that weights and KV cache take together; without a GPU, of the free main memory for the KV cache alone; not beside kv_cache",
  },
  kvCache: {
    ...memoryBudget,
    default: null,
    help: "Memory for the KV cache; else 25 % of what is free at load; encoders have none",
  },
  blockSize: {
    ...multipleOf(4, 4, 256),
    default: 32,
    flag: "--pa-block-size",
    help: "Tokens of a block of the KV cache; the llama engine has blocks where its KV is one pool",
  },
  cacheType: {
    ...oneOf(["auto", "f16", "bf16", "q8_0", "q4_0", "f32"]),
    default: "auto",
    plannedValues: ["f8e4m3"],
    flag: "--pa-cache-type",
    help: "Number type of the KV cache; `auto` is f16 with the llama engine, bf16 with the wasm engine, which has no q4_0",
  },
} as const satisfies Record<string, Key>;
