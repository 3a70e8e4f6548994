// Owns the general keys of what a model may do by itself: search, code, shell, outside tools, and adapters loaded at run
// time; and the keys of the sandbox that confines it. Part of the table in keys.ts.
import { type Key, planned } from "../key.ts";
import { file, flagSwitch, folder, integer, oneOf, seconds, text } from "../kinds.ts";

export const agenticKeys = {
  mcpConfig: {
    ...file,
    ...planned(),
    default: null,
    environment: "MCP_CONFIG_PATH",
    help: "JSON file of the outside tool servers to use",
  },
  agent: {
    ...flagSwitch,
    ...planned(false),
    default: false,
    otherNames: ["agentic"],
    help: "Allow search, code execution and the shell",
  },
  enableSearch: { ...flagSwitch, ...planned(false), default: false, help: "Allow the model to search the web" },
  searchEmbeddingModel: {
    ...oneOf(["embedding-gemma"]),
    ...planned(),
    default: null,
    help: "Model that ranks what a search finds; needs enable_search or agent",
  },
  enableCodeExecution: { ...flagSwitch, ...planned(false), default: false, help: "Allow the model to run Python" },
  codeExecPython: {
    ...text("a Python command", "COMMAND"),
    ...planned(),
    default: null,
    defaultSays: "`python3`; `python` on Windows",
    help: "Python that runs the code; needs code execution",
  },
  codeExecTimeout: { ...seconds(1), ...planned(), default: 60, help: "Seconds a run of code may take" },
  codeExecWorkdir: {
    ...folder,
    ...planned(),
    default: null,
    defaultSays: "a temporary one per session",
    help: "Folder the code runs in; needs code execution",
  },
  enableShell: { ...flagSwitch, ...planned(false), default: false, help: "Allow the model to use a shell" },
  shellPath: {
    ...text("a shell", "COMMAND"),
    ...planned(),
    default: null,
    defaultSays: "`/bin/sh`; `cmd` on Windows",
    help: "Shell that is used; needs the shell",
  },
  shellTimeout: { ...seconds(1), ...planned(), default: 600, help: "Seconds a shell command may take" },
  shellWorkdir: {
    ...folder,
    ...planned(),
    default: null,
    defaultSays: "a temporary one per session",
    help: "Folder the shell starts in; needs the shell",
  },
  skillsDir: {
    ...folder,
    ...planned(),
    default: null,
    defaultSays: "the system's temporary folder",
    help: "Folder of skills; needs the shell",
  },
  agentPermission: {
    ...oneOf(["auto", "ask", "deny"]),
    ...planned("auto"),
    default: "auto",
    otherNames: ["code_exec_permission"],
    help: "Whether a tool runs, asks first, or is refused",
  },
} as const satisfies Record<string, Key>;

export const sandboxKeys = {
  mode: {
    ...oneOf(["auto", "on", "off"]),
    ...planned("auto", "off"),
    default: "auto",
    flag: "--sandbox",
    environment: "SERVICE_SANDBOX",
    help: "Whether tools are confined; `on` where they cannot be is an error",
  },
  profile: {
    ...oneOf(["developer", "restricted"]),
    ...planned(),
    default: null,
    defaultSays: "`developer` with agent, code or shell tools, else `restricted`",
    flag: "--sandbox-profile",
    help: "What confined tools may do",
  },
  maxMemoryMb: { ...integer(1), ...planned(), default: 2048, help: "MiB of memory of a session's tools" },
  maxCpuSecs: { ...seconds(1), ...planned(), default: 600, help: "Seconds of computing of a session's tools" },
  maxProcs: { ...integer(1), ...planned(), default: 64, help: "Processes and threads of a session's tools" },
  network: {
    ...oneOf(["none", "loopback", "full"]),
    ...planned(),
    default: null,
    defaultSays: "`full` for developer, `loopback` for restricted",
    flag: "--sandbox-network",
    help: "What confined tools reach",
  },
} as const satisfies Record<string, Key>;
