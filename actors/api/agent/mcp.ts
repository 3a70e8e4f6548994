// MCP servers: the settings of the servers whose tools models may call, and the messages between the main thread and the MCP
// place (actors/mcp-client), which is connected to these servers.
import type { ToolSpec } from "../../../engines/generation.ts";
import type { SandboxSettings } from "../../../runtime/sandbox/sandbox.ts";
import type { ToolAnswer, ToolQuestion } from "./questions.ts";
import type { ServerToolResult, ToolProgress } from "./server-tools.ts";

/** How a server is reached. */
export type McpServerSource =
  | {
      readonly type: "process";
      readonly command: string;
      readonly args: readonly string[];
      /** Environment variables, in addition to PATH, HOME, LANG and TMPDIR of the server's own environment. */
      readonly environment: Readonly<Record<string, string>>;
      /** Current folder of the process; null: a private temporary folder of all such servers. */
      readonly workFolder: string | null;
    }
  | {
      /** `http`: streamable HTTP, or HTTP with SSE if the server only supports that. */
      readonly type: "http" | "sse" | "websocket";
      readonly url: string;
      readonly headers: Readonly<Record<string, string>>;
    };

export interface McpServerSettings {
  /** Unique among the servers. */
  readonly id: string;
  /** Name in messages, and prefix of tools whose names are not unique. */
  readonly name: string;
  readonly source: McpServerSource;
  /** Prefix of the names of its tools; null: none. */
  readonly toolPrefix: string | null;
  /** Patterns of the URIs of readable resources, with `*` for any text; null: all resources. */
  readonly resources: readonly string[] | null;
  /** Time limit of a call without progress, in milliseconds. */
  readonly callTimeoutMs: number;
  /** Values that must not appear in logs and errors. */
  readonly secrets: readonly string[];
}

/** Start parameters of the MCP place. */
export interface McpPlaceInit {
  readonly servers: readonly McpServerSettings[];
  /** Version of this program, which is sent to the servers. */
  readonly version: string;
  /** Maximum number of concurrent calls of one server. */
  readonly maxConcurrentCalls: number;
  /** Names that tools must not have: those of the built-in tools. */
  readonly reservedNames: readonly string[];
  /** Sandbox of servers that are processes; null: they run without a sandbox. */
  readonly sandbox: SandboxSettings | null;
  readonly mailboxLimit: number;
}

/** Start parameters that the place receives. `folder`: current folder of server processes that have no folder of their own. */
export interface McpThreadInit extends McpPlaceInit {
  readonly folder: string;
}

/** What a call of a tool does on its server. All except `call` belong to tools that the place itself adds. */
export type McpAction = "call" | "list_resources" | "read_resource" | "list_prompts" | "get_prompt";

/** A tool of a connected server. */
export interface McpTool {
  /** Declaration for the model. The name is unique. */
  readonly spec: ToolSpec;
  /** Id and name of the server. */
  readonly server: string;
  readonly serverName: string;
  readonly action: McpAction;
  /** Name of the tool on the server. */
  readonly tool: string;
}

export interface McpCall extends Pick<McpTool, "server" | "action" | "tool"> {
  /** Unique among the calls of all runs. */
  readonly id: string;
  /** Arguments as JSON text, as the model wrote it. It may be invalid. */
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
  /** Answers the question with this number. */
  answer(message: { readonly question: number; readonly answer: ToolAnswer }): void;
}

/** Progress report of the MCP place. */
export type McpReport =
  /** The tools of all connected servers, and the number of these servers. Sent after each change. */
  | { readonly type: "tools"; readonly tools: readonly McpTool[]; readonly connected: number }
  | { readonly type: "progress"; readonly call: string; readonly progress: ToolProgress }
  /** A server asks the user during the call `call`. */
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
