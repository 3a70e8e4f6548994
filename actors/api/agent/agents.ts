// Agents: the interface that http/ uses to run requests whose tools run on the server. The agent loop (actors/agent-loop)
// implements it. A run is a sequence of rounds; a round is one generation and the tool calls in its output.
import type { GenerateEvent, GenerateRequest, ToolCall, ToolSpec } from "../../../engines/generation.ts";
import type { StoredFile } from "./files.ts";
import type { AnswerValue } from "./questions.ts";
import type { WebOptions } from "./web.ts";

/** Built-in tools that a request may use. */
export type ToolGroup = "code_execution" | "shell" | "web_search";

export type Permission = "auto" | "ask" | "deny";

/** Default and maximum number of rounds of a run. The server or a request may set a lower maximum. */
export const maxToolRounds = 256;

/** Tool types of progress events. */
export type ToolType = "code_execution" | "web_search" | "shell" | "custom";

/** A file that the request wants the model to produce. */
export interface RequestedFile {
  readonly name: string;
  readonly format: string | null;
  readonly description: string | null;
}

/** A file in the conversation: uploaded earlier, or sent with the request. `message`: index of the message that contains it. */
export type InputFile = { readonly message: number } & (
  | { readonly id: string }
  | { readonly name: string; readonly content: Uint8Array }
  | { readonly url: string; readonly name: string | null }
);

/** A skill that a request uses. `version`: null = the latest version. */
export interface SkillReference {
  readonly id: string;
  readonly version: number | null;
}

/** Calls of server tools in the earlier answers of a conversation. */
export interface EarlierCalls {
  readonly ids: readonly string[];
  /** Id of the session in which the latest call ran; null = unknown. */
  readonly session: string | null;
}

export const noEarlierCalls: EarlierCalls = { ids: [], session: null };

/** Options of an agent request. */
export interface AgentOptions {
  readonly groups: readonly ToolGroup[];
  /** Names of the server tools (ServerTool) that the request offers to the model. */
  readonly serverTools: readonly string[];
  readonly web: WebOptions;
  /** Maximum number of calls of a tool in all rounds, by tool name. Tools that are not listed have no such limit. */
  readonly maxUses: Readonly<Record<string, number>>;
  readonly skills: readonly SkillReference[];
  /**
   * true: the request uses no agent feature, and its only server tools are the ones that every request gets. The response then
   * has no extension events, because the client may not support them.
   */
  readonly isPlain: boolean;
  /** Permission that the request sets; null = use the server's. A request can only make the permission stricter. */
  readonly permission: Permission | null;
  /** Maximum number of rounds; null = use the server's limit. */
  readonly maxRounds: number | null;
  /** Maximum number of calls of server tools in all rounds; null = no limit. */
  readonly maxCalls: number | null;
  /** Session id in the request; null = no session is named. */
  readonly sessionId: string | null;
  /**
   * Calls of server tools in the conversation. If the request names no session and the conversation belongs to the
   * session of these calls, the run continues that session.
   */
  readonly earlierCalls: EarlierCalls;
  /** Whether the run continues the last message of the conversation, which is an answer that stopped at a limit of tool rounds or calls. */
  readonly continuesAnswer: boolean;
  /** Digest of each message of the conversation (messageDigest). */
  readonly digests: readonly string[];
  readonly requestedFiles: readonly RequestedFile[];
  readonly inputFiles: readonly InputFile[];
  /** Whether the response is streamed, so that the user can be asked for approvals. */
  readonly isStreamed: boolean;
}

export interface ApprovalRequest {
  readonly type: "agentic_tool_approval_required";
  readonly approval_id: string;
  readonly session_id: string;
  readonly round: number;
  readonly tool: {
    readonly source: "built_in" | "user" | "mcp" | "external";
    readonly kind: "code_execution" | "web_search" | "shell" | "file" | "custom" | "external";
    readonly label: string;
  };
  readonly arguments: unknown;
}

/** Record of a tool call in a response (`agentic_tool_calls`). */
export interface ToolCallRecord {
  readonly round: number;
  readonly name: string;
  readonly arguments: string;
  readonly result_content: string;
  readonly result_images_base64?: readonly string[];
  readonly file_ids?: readonly string[];
}

/**
 * Events of a run. The events of its generations keep their order and meaning, with two exceptions: calls of server tools are
 * omitted, and `begin`, `finish` and `done` are sent only once. `finish` is sent when the last round ends. `done` has the total
 * usage of all rounds.
 */
export type AgentEvent =
  | GenerateEvent
  /** First event of a run. */
  | { readonly type: "session"; readonly id: string }
  /**
   * A server tool is about to run or reports progress (`calling`), or has ended (`complete`). `call`: the call as the model wrote
   * it. `data`: the fields of the progress event.
   */
  | {
      readonly type: "tool_progress";
      readonly phase: "calling" | "complete";
      readonly round: number;
      /** Index of the call in its round, counted from 0. Calls of a round may end in another order. */
      readonly index: number;
      readonly call: ToolCall;
      readonly toolType: ToolType;
      /** Label of the tool's MCP server; null = not a tool of an MCP server. */
      readonly server: string | null;
      readonly data: Readonly<Record<string, unknown>>;
      /** Record of the call in the phase `complete`; null in the phase `calling`. */
      readonly record: ToolCallRecord | null;
    }
  | { readonly type: "approval"; readonly request: ApprovalRequest }
  /** The model called server tools, but the maximum number of rounds is reached. The event `finish` with the reason `length` follows. */
  | { readonly type: "rounds_reached" }
  /** A file was stored. `inline`: its content as text, or as base64 if binary; null if it exceeds the limits of fileLimits. */
  | { readonly type: "file"; readonly file: StoredFile; readonly inline: InlineContent | null };

export interface InlineContent {
  readonly text?: string;
  readonly data_base64?: string;
}

export type ApprovalDecision = {
  readonly decision: "approve" | "deny";
  readonly message: string | null;
  readonly rememberForSession: boolean;
  /** Data that a tool requested from the user; null = no data. */
  readonly content: Readonly<Record<string, AnswerValue>> | null;
  /** With `approve`: the user's edited arguments as JSON text, which replace the model's; null = not edited. */
  readonly arguments: string | null;
};

export type ApprovalStatus = "resolved" | "queued" | "not_found";

/** Declaration of a server tool. */
export interface OfferedServerTool {
  readonly spec: ToolSpec;
  /** Label of the tool's MCP server; null = not a tool of an MCP server. */
  readonly server: string | null;
}

export interface Agents {
  /** Groups of built-in tools that the server's settings enable. */
  readonly groups: readonly ToolGroup[];
  /** Whether the server sends calls of clients' function tools to a URL (tool_dispatch_url). */
  readonly dispatches: boolean;
  /** The server's permission. A request can only make it stricter. */
  readonly permission: Permission;
  /** Server tools that are available to requests now. */
  readonly serverTools: readonly OfferedServerTool[];
  /**
   * Whether a request without a list of MCP servers gets the tools of all configured servers. Tools that do not belong to an MCP
   * server are always available.
   */
  readonly registersServerTools: boolean;
  /** Number of MCP tools and of connected MCP servers; null = no MCP servers are configured. */
  readonly toolServers: { readonly tools: number; readonly connected: number } | null;
  /**
   * Runs a request. Like Inference.generate, it yields batches of events, and failures arrive as one final `error` event.
   * Aborting the signal ends the run and its running tools at once.
   */
  run(
    request: GenerateRequest,
    agent: AgentOptions,
    signal: AbortSignal,
    onPrepared?: () => void,
  ): AsyncIterable<readonly AgentEvent[]>;
  /**
   * Records the user's decision on an approval. Returns `queued` if the run does not wait for the decision yet. Throws
   * invalid_value if `content` does not match the data that the approval requests.
   */
  decide(id: string, decision: ApprovalDecision): ApprovalStatus;
  /** Ends the processes of a session and removes its work folder. */
  forget(sessionId: string): Promise<void>;
  /** Returns the approvals that are pending in the runs of a session. */
  pending(sessionId: string): readonly ApprovalRequest[];
}
