// The four coding agents: how each is configured for the server and started without a terminal, and how a model calls its tools.
// The settings are those of docs/clients.md, with telemetry and updates disabled.
import { join } from "node:path";

/** Call of one of the agent's tools. */
export type Call = readonly [name: string, args: object];

export interface CodingAgent {
  readonly name: string;
  /** Path of the model endpoint that the agent uses. */
  readonly endpoint: string;
  /** Number of requests to that endpoint that are not part of the task, such as a request for a title. */
  readonly otherRequests: number;
  /** Returns the agent's command line. `installed`: folder node_modules that contains the agents' packages. */
  command(installed: string, task: string): readonly string[];
  /** Returns the agent's environment variables. */
  environment(url: string): Readonly<Record<string, string>>;
  /** Returns the agent's settings files: contents by path relative to its home folder. */
  files(url: string): Readonly<Record<string, string>>;
  /** Returns the call that reads a file. */
  read(path: string): Call;
  /** Returns the call that runs a command. */
  run(command: string): Call;
  /** Returns the call that creates a file. */
  create(path: string, content: string): Call;
  /** Returns the call that replaces a text in a file. */
  edit(path: string, from: string, to: string): Call;
}

const codex: CodingAgent = {
  name: "Codex",
  endpoint: "/v1/responses",
  otherRequests: 0,
  command: (installed, task) => [
    join(installed, "@openai/codex/vendor/x86_64-unknown-linux-musl/bin/codex"),
    ...["exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", task],
  ],
  environment: () => ({}),
  files: (url) => ({
    ".codex/config.toml": `
      model = "tiny"
      model_provider = "troupe"
      model_context_window = 32768
      web_search = "disabled"
      check_for_update_on_startup = false
      [analytics]
      enabled = false
      [features]
      plugins = false
      apps = false
      [model_providers.troupe]
      name = "troupe"
      base_url = "${url}/v1"
      wire_api = "responses"`,
  }),
  run: (cmd) => ["exec_command", { cmd }],
  // Codex has no tools for files. Its models write patches with a shell command that Codex recognises.
  read: (path) => ["exec_command", { cmd: `cat ${path}` }],
  create: (path, content) => patch(`*** Add File: ${path}\n${content.replace(/^(?=.)/gm, "+")}`),
  edit: (path, from, to) => patch(`*** Update File: ${path}\n@@\n-${from}\n+${to}\n`),
};

function patch(changes: string): Call {
  return ["exec_command", { cmd: `apply_patch <<'EOF'\n*** Begin Patch\n${changes}*** End Patch\nEOF` }];
}

export const claudeCode: CodingAgent = {
  name: "Claude Code",
  endpoint: "/v1/messages",
  otherRequests: 0,
  command: (installed, task) => [
    join(installed, "@anthropic-ai/claude-code-linux-x64/claude"),
    ...["-p", task, "--allowedTools", "Bash,Edit,Read,Write"],
  ],
  environment: (url) => ({
    ANTHROPIC_BASE_URL: url,
    ANTHROPIC_AUTH_TOKEN: "none",
    ANTHROPIC_MODEL: "tiny",
    ANTHROPIC_DEFAULT_HAIKU_MODEL: "tiny",
    CLAUDE_CODE_MAX_CONTEXT_TOKENS: "32768",
    CLAUDE_CODE_MAX_OUTPUT_TOKENS: "8192",
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
  }),
  files: () => ({}),
  read: (file_path) => ["Read", { file_path }],
  run: (command) => ["Bash", { command, description: "Run a command" }],
  create: (file_path, content) => ["Write", { file_path, content }],
  edit: (file_path, old_string, new_string) => ["Edit", { file_path, old_string, new_string }],
};

const opencode: CodingAgent = {
  name: "opencode",
  endpoint: "/v1/chat/completions",
  otherRequests: 1,
  command: (installed, task) => [join(installed, "opencode-linux-x64/bin/opencode"), "run", task],
  // Without npm_config_offline, opencode installs the package of its plugin API into its home folder.
  environment: () => ({
    OPENCODE_DISABLE_AUTOUPDATE: "1",
    OPENCODE_DISABLE_MODELS_FETCH: "1",
    npm_config_offline: "true",
  }),
  files: (url) => ({
    ".config/opencode/opencode.json": JSON.stringify({
      model: "troupe/tiny",
      share: "disabled",
      provider: {
        troupe: {
          npm: "@ai-sdk/openai-compatible",
          name: "troupe",
          options: { baseURL: `${url}/v1`, apiKey: "none" },
          models: { tiny: { name: "tiny", limit: { context: 32768, output: 8192 } } },
        },
      },
    }),
  }),
  read: (filePath) => ["read", { filePath }],
  run: (command) => ["bash", { command, description: "Run a command" }],
  create: (filePath, content) => ["write", { filePath, content }],
  edit: (filePath, oldString, newString) => ["edit", { filePath, oldString, newString }],
};

const qwenCode: CodingAgent = {
  name: "Qwen Code",
  endpoint: "/v1/chat/completions",
  otherRequests: 0,
  command: (installed, task) => [
    process.execPath,
    join(installed, "@qwen-code/qwen-code/cli-entry.js"),
    ...["--yolo", "-p", task],
  ],
  environment: (url) => ({
    OPENAI_BASE_URL: `${url}/v1`,
    OPENAI_API_KEY: "none",
    OPENAI_MODEL: "tiny",
    QWEN_CODE_MAX_OUTPUT_TOKENS: "8192",
  }),
  files: () => ({
    ".qwen/settings.json": JSON.stringify({
      model: { generationConfig: { contextWindowSize: 32768 } },
      privacy: { usageStatisticsEnabled: false },
      general: { enableAutoUpdate: false },
      // If enabled, the agent may ask the model for notes on the conversation, in a separate request.
      memory: { enableManagedAutoMemory: false },
      // The ripgrep in the agent's package has no execute permission.
      tools: { useRipgrep: false },
    }),
  }),
  read: (file_path) => ["read_file", { file_path }],
  run: (command) => ["run_shell_command", { command, is_background: false }],
  create: (file_path, content) => ["write_file", { file_path, content }],
  edit: (file_path, old_string, new_string) => ["edit", { file_path, old_string, new_string }],
};

export const codingAgents: readonly CodingAgent[] = [codex, claudeCode, opencode, qwenCode];
