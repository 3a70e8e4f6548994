// MCP servers: the settings of the servers whose tools models may call, and the messages between the main thread and the MCP
// thread (actors/mcp-client), which connects to these servers.
import type { ToolSpec } from "../../../engines/generation.ts";
import type { SandboxSettings } from "../../../runtime/sandbox/sandbox.ts";
import type { ToolAnswer, ToolQuestion } from "./questions.ts";
import type { ServerToolResult, ToolProgress } from "./server-tools.ts";

/** How to connect to a server. */
export type McpServerSource =
  | {
      readonly type: "process";
      readonly command: string;
      readonly args: readonly string[];
      /** Environment variables of the process, in addition to PATH, HOME, LANG and TMPDIR. */
      readonly environment: Readonly<Record<string, string>>;
      /** Working directory of the process; null = a private temporary folder that all servers without a configured folder share. */
      readonly workFolder: string | null;
    }
  | {
      /** `http`: streamable HTTP, or HTTP with SSE if the server supports only SSE. */
      readonly type: "http" | "sse" | "websocket";
      readonly url: string;
      readonly headers: Readonly<Record<string, string>>;
    };

export interface McpServerSettings {
  /** Id of the server, unique among the servers. */
  readonly id: string;
  /** Server name in log messages and errors, and prefix of tools whose names are not unique. */
  readonly name: string;
  readonly source: McpServerSource;
  /** Prefix of the names of the server's tools; null = no prefix. */
  readonly toolPrefix: string | null;
  /** URI patterns of the resources that may be read; `*` matches any text. null = all resources. */
  readonly resources: readonly string[] | null;
  /** Milliseconds without a progress report after which a call fails. */
  readonly callTimeoutMs: number;
  /** Strings to hide in logs and errors. */
  readonly secrets: readonly string[];
}

/** Start parameters of the MCP thread. */
export interface McpPlaceInit {
  readonly servers: readonly McpServerSettings[];
  /** Version of this program, sent to the MCP servers. */
  readonly version: string;
  /** Maximum number of concurrent calls per server. */
  readonly maxConcurrentCalls: number;
  /** Names that MCP tools must not have, because built-in tools have them. */
  readonly reservedNames: readonly string[];
  /** Sandbox for servers that run as child processes; null = no sandbox. */
  readonly sandbox: SandboxSettings | null;
  readonly mailboxLimit: number;
}

/** Start parameters that the thread receives. `folder`: working directory of server processes that have none configured. */
export interface McpThreadInit extends McpPlaceInit {
  readonly folder: string;
}

/** What a tool does. `call`: calls a tool of the MCP server. The MCP thread adds the other kinds, to read resources and prompts. */
export type McpAction = "call" | "list_resources" | "read_resource" | "list_prompts" | "get_prompt";

/** A tool of a connected server. */
export interface McpTool {
  /** Tool declaration for the model. The name is unique among all tools. */
  readonly spec: ToolSpec;
  /** Id and name of the MCP server. */
  readonly server: string;
  readonly serverName: string;
  readonly action: McpAction;
  /** Name of the tool on its server. */
  readonly tool: string;
}

export interface McpCall extends Pick<McpTool, "server" | "action" | "tool"> {
  /** Id of the call, unique among the calls of all runs. */
  readonly id: string;
  /** Arguments as JSON text written by the model, possibly invalid. */
  readonly arguments: string;
  readonly session: string;
  readonly client: string;
  /** Whether the server may ask the user questions during the call. */
  readonly canAsk: boolean;
}

/** Protocol of the actor `mcp`. */
export interface McpCalls {
  /** Runs a call. Throws peer_gone if the server is not connected or ends, and queue_full, cancelled. */
  call(message: McpCall): Promise<ServerToolResult>;
  cancel(message: { readonly id: string }): void;
  /** Sends the user's answer to a server's question. `question`: number of the question in the McpReport. */
  answer(message: { readonly question: number; readonly answer: ToolAnswer }): void;
}

/** Message of the MCP thread to the main thread. */
export type McpReport =
  /** The tools of all connected servers, and the number of connected servers. Sent after each change. */
  | { readonly type: "tools"; readonly tools: readonly McpTool[]; readonly connected: number }
  | { readonly type: "progress"; readonly call: string; readonly progress: ToolProgress }
  /** A server asks the user a question during the call `call`. */
  | {
      readonly type: "question";
      readonly call: string;
      readonly question: number;
      readonly content: ToolQuestion;
    }
  | {
      readonly type: "log";
      readonly level: "debug" | "info" | "warn";
      readonly fields: Readonly<Record<string, unknown>>;
      readonly message: string;
    };
