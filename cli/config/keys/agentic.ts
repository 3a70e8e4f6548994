// Keys of server-side tools (search, code execution, shell, MCP clients) and of the sandbox they run in. Part of the table in
// keys.ts.
import { type Key, planned } from "../key.ts";
import { file, flagSwitch, folder, integer, oneOf, seconds, text } from "../kinds.ts";

export const agenticKeys = {
  mcpConfig: {
    ...file,
    ...planned(),
    default: null,
    environment: "MCP_CONFIG_PATH",
    help: "JSON file of the MCP servers whose tools the models may call",
  },
  agent: {
    ...flagSwitch,
    default: false,
    otherNames: ["agentic"],
    everyday: true,
    help: "Offer models code execution and the shell; web search is not built yet",
  },
  enableSearch: { ...flagSwitch, ...planned(false), default: false, help: "Enable web search" },
  searchEmbeddingModel: {
    ...oneOf(["embedding-gemma"]),
    ...planned(),
    default: null,
    help: "Embedding model that ranks search results; needs enable_search or agent",
  },
  enableCodeExecution: { ...flagSwitch, ...planned(false), default: false, help: "Enable Python code execution" },
  codeExecPython: {
    ...text("a Python command", "COMMAND"),
    ...planned(),
    default: null,
    defaultSays: "`python3`; `python` on Windows",
    help: "Python interpreter for code execution; needs code execution",
  },
  codeExecTimeout: { ...seconds(1), ...planned(), default: 60, help: "Timeout of one code execution in seconds" },
  codeExecWorkdir: {
    ...folder,
    ...planned(),
    default: null,
    defaultSays: "a temporary one per session",
    help: "Working directory of code execution; needs code execution",
  },
  enableShell: { ...flagSwitch, ...planned(false), default: false, help: "Enable the shell tool" },
  shellPath: {
    ...text("a shell command", "COMMAND"),
    ...planned(),
    default: null,
    defaultSays: "`/bin/sh`; `cmd` on Windows",
    help: "Shell executable; needs the shell tool",
  },
  shellTimeout: { ...seconds(1), ...planned(), default: 600, help: "Timeout of one shell command in seconds" },
  shellWorkdir: {
    ...folder,
    ...planned(),
    default: null,
    defaultSays: "a temporary one per session",
    help: "Working directory of the shell; needs the shell tool",
  },
  skillsDir: {
    ...folder,
    ...planned(),
    default: null,
    defaultSays: "the system's temporary folder",
    help: "Folder of skills; needs the shell tool",
  },
  agentPermission: {
    ...oneOf(["auto", "ask", "deny"]),
    default: "auto",
    otherNames: ["code_exec_permission"],
    help: "Permission of tool calls: run, ask first, or refuse",
  },
} as const satisfies Record<string, Key>;

export const sandboxKeys = {
  mode: {
    ...oneOf(["auto", "on", "off"]),
    ...planned("auto", "off"),
    default: "auto",
    flag: "--sandbox",
    environment: "SERVICE_SANDBOX",
    help: "Sandbox for tools; `on` is an error if the system has no isolation",
  },
  profile: {
    ...oneOf(["developer", "restricted"]),
    ...planned(),
    default: null,
    defaultSays: "`developer` with agent, code or shell tools, else `restricted`",
    flag: "--sandbox-profile",
    help: "Permissions of tools in the sandbox",
  },
  maxMemoryMb: { ...integer(1), ...planned(), default: 2048, help: "Memory limit of a session's tools in MiB" },
  maxCpuSecs: { ...seconds(1), ...planned(), default: 600, help: "CPU time limit of a session's tools in seconds" },
  maxProcs: {
    ...integer(1),
    ...planned(),
    default: 64,
    help: "Maximum number of processes and threads of a session's tools",
  },
  network: {
    ...oneOf(["none", "loopback", "full"]),
    ...planned(),
    default: null,
    defaultSays: "`full` for developer, `loopback` for restricted",
    flag: "--sandbox-network",
    help: "Network access of tools in the sandbox",
  },
} as const satisfies Record<string, Key>;
