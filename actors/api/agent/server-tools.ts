// Server tools: the interface of tools that run on the server side but outside its sandbox: tools of MCP servers, and tools of a
// program that embeds the server.
import type { ToolSpec } from "../../../engines/generation.ts";
import type { ApprovalRequest } from "./agents.ts";
import type { AskUser } from "./questions.ts";

export interface ServerTool {
  /** Tool declaration for the model. The name is unique among all server tools. */
  readonly spec: ToolSpec;
  readonly about: ApprovalRequest["tool"];
  /** Label of the tool's MCP server; absent = not a tool of an MCP server. */
  readonly server?: string | null;
  /**
   * Runs a call. An error of the tool is returned as a result. Rejects if the tool cannot be reached; the model gets this error
   * as the result.
   */
  run(call: ServerToolCall): Promise<ServerToolResult>;
}

export interface ServerToolCall {
  /** Id of the call, unique among the calls of all runs. */
  readonly id: string;
  /** Arguments as JSON text written by the model, possibly invalid. */
  readonly arguments: string;
  readonly session: string;
  readonly client: string;
  /** Aborted when the call is cancelled. */
  readonly signal: AbortSignal;
  /** Reports progress to the client of the run. */
  readonly onProgress: (progress: ToolProgress) => void;
  /** Asks the user of the run a question and resolves to the answer; null = the user cannot be asked. */
  readonly ask: AskUser | null;
}

/** Progress of a call: `progress` increases up to `total`; `total` is null if unknown. */
export interface ToolProgress {
  readonly progress: number;
  readonly total: number | null;
  readonly message: string | null;
}

export interface ServerToolResult {
  readonly status: "success" | "error" | "timeout" | "cancelled";
  /** Result text for the model. */
  readonly content: string;
  /** PNG images, in base64. */
  readonly images: readonly string[];
}

/** Provider of server tools, for example the MCP client. */
export interface ToolSource {
  /** Returns the tools that can be called now. The list may change at any time; a run keeps the tools that were available at its start. */
  tools(): readonly ServerTool[];
  /** Number of connected servers of the source; absent = its tools run in this process. */
  readonly connected?: number;
}
