// Server tools: the interface of tools that run on the server but not in its sandbox: tools of MCP servers, and tools of a
// program that embeds the server.
import type { ToolSpec } from "../../../engines/generation.ts";
import type { ApprovalRequest } from "./agents.ts";
import type { AskUser } from "./questions.ts";

export interface ServerTool {
  /** Declaration for the model. The name is unique among all server tools. */
  readonly spec: ToolSpec;
  readonly about: ApprovalRequest["tool"];
  /** Label of the MCP server of the tool; absent: the tool belongs to none. */
  readonly server?: string | null;
  /** Runs a call. An error of the tool is a result. Rejects if the tool cannot be reached; that is a result for the model too. */
  run(call: ServerToolCall): Promise<ServerToolResult>;
}

export interface ServerToolCall {
  /** Id of the call, unique among the calls of all runs. */
  readonly id: string;
  /** Arguments as JSON text, as the model wrote it. It may be invalid. */
  readonly arguments: string;
  readonly session: string;
  readonly client: string;
  /** Aborted when the call is cancelled. */
  readonly signal: AbortSignal;
  /** Reports progress to the client of the run. */
  readonly onProgress: (progress: ToolProgress) => void;
  /** Asks the user of the run, and waits for the answer; null: the user cannot be asked. */
  readonly ask: AskUser | null;
}

/** `progress` increases up to `total`, which is null if it is unknown. */
export interface ToolProgress {
  readonly progress: number;
  readonly total: number | null;
  readonly message: string | null;
}

export interface ServerToolResult {
  readonly status: "success" | "error" | "timeout" | "cancelled";
  /** Text for the model. */
  readonly content: string;
  /** Base64 of PNG images. */
  readonly images: readonly string[];
}

/** Provider of server tools, for example the MCP client. */
export interface ToolSource {
  /** Returns the tools that can be called now. The list may change at any time; a run keeps the tools it began with. */
  tools(): readonly ServerTool[];
  /** Number of other servers to which the source is connected now; absent: the tools run in this process. */
  readonly connected?: number;
}
