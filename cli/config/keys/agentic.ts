// Keys of server-side tools (search, code execution, shell, MCP clients) and of the sandbox they run in. Part of the table in
// keys.ts.
import type { Key } from "../key.ts";
import { file, flagSwitch, folder, integer, oneOf, seconds, text } from "../kinds.ts";

export const agenticKeys = {
  mcpConfig: {
    ...file,
    default: null,
    environment: "MCP_CONFIG_PATH",
    help: "JSON file of the MCP servers whose tools the models may call; docs/agents.md describes it",
  },
  agent: {
    ...flagSwitch,
    default: false,
    otherNames: ["agentic"],
    everyday: true,
    help: "Offer models code execution, the shell and web search",
  },
  enableSearch: { ...flagSwitch, default: false, help: "Offer models web search and reading of web pages" },
  searchEmbeddingModel: {
    ...text("the id or alias of a configured embedding model", "NAME"),
    default: null,
    defaultSays: "results are ranked by their words (BM25)",
    help: "Embedding model that ranks the passages of search results; needs enable_search or agent",
  },
  enableCodeExecution: { ...flagSwitch, default: false, help: "Offer models Python code execution" },
  codeExecPython: {
    ...text("a Python command", "COMMAND"),
    default: null,
    defaultSays: "`python3`; `python` on Windows",
    help: "Python interpreter for code execution; needs code execution",
  },
  codeExecTimeout: { ...seconds(1), default: 60, help: "Timeout of one code execution in seconds" },
  codeExecWorkdir: {
    ...folder,
    default: null,
    defaultSays: "the system's temporary folder",
    commands: ["serve"],
    help: "Folder in which each session of code execution gets a working directory; needs code execution",
  },
  enableShell: { ...flagSwitch, default: false, help: "Offer models shell commands" },
  shellPath: {
    ...text("a shell command", "COMMAND"),
    default: null,
    defaultSays: "`/bin/sh`; `cmd` on Windows",
    help: "Shell executable; needs the shell tool",
  },
  shellTimeout: { ...seconds(1), default: 600, help: "Timeout of the commands of one shell call together in seconds" },
  shellWorkdir: {
    ...folder,
    default: null,
    defaultSays: "the system's temporary folder",
    commands: ["serve"],
    help: "Folder in which each session of the shell gets a working directory; code execution uses the same folder, so code_exec_workdir must be unset or equal; needs the shell tool",
  },
  skillsDir: {
    ...folder,
    default: null,
    defaultSays: "none",
    help: "Folder whose folders with a SKILL.md are served as skills, besides uploaded ones; needs the shell tool",
  },
  agentPermission: {
    ...oneOf(["auto", "ask", "deny"]),
    default: "auto",
    defaultOf: { run: "ask" },
    defaultSays: "`auto`; run and agent: `ask`",
    otherNames: ["code_exec_permission"],
    help: "Permission of tool calls: run, ask first, or refuse",
  },
} as const satisfies Record<string, Key>;

export const sandboxKeys = {
  mode: {
    ...oneOf(["auto", "on", "off"]),
    default: "auto",
    flag: "--sandbox",
    environment: "SERVICE_SANDBOX",
    help: "Sandbox for tools; `on` is an error if the system has no isolation",
  },
  profile: {
    ...oneOf(["developer", "restricted"]),
    default: null,
    defaultSays: "`developer` with any of these tools, else `restricted`",
    flag: "--sandbox-profile",
    help: "Permissions of tools in the sandbox",
  },
  maxMemoryMb: {
    ...integer(64),
    default: 2048,
    help: "Memory limit in MiB of the processes of one command, or of a session's Python",
  },
  maxCpuSecs: {
    ...seconds(1),
    default: 600,
    help: "CPU time limit in seconds of one process; at least the timeouts of code and shell",
  },
  maxProcs: {
    ...integer(1),
    default: 64,
    help: "Maximum number of processes and threads of one command, or of a session's Python",
  },
  maxDiskMb: {
    ...integer(1),
    default: 2048,
    help: "Maximum size in MiB of a session's working directory and temporary files",
  },
  network: {
    ...oneOf(["none", "loopback", "full"]),
    default: null,
    defaultSays: "`full` for developer, `loopback` for restricted",
    flag: "--sandbox-network",
    help: "Network of tools: no sockets of the internet, only those among the processes of one command, or the network of this machine",
  },
} as const satisfies Record<string, Key>;
