// Agents: the interface that http/ uses to run requests whose tools the server runs. The agent loop (actors/agent-loop)
// implements it. A run is a sequence of rounds; each round is one generation and the tool calls that it asked for.
import type { GenerateEvent, GenerateRequest, ToolCall, ToolSpec } from "../../../engines/generation.ts";
import type { StoredFile } from "./files.ts";
import type { AnswerValue } from "./questions.ts";
import type { WebOptions } from "./web.ts";

/** Built-in tools that a request may use. */
export type ToolGroup = "code_execution" | "shell" | "web_search";

export type Permission = "auto" | "ask" | "deny";

/** Default maximum number of rounds of a run, and the largest value that the server or a request may set. */
export const maxToolRounds = 256;

/** Tool types of progress events. */
export type ToolType = "code_execution" | "web_search" | "shell" | "custom";

/** A file that the request wants the model to produce. */
export interface RequestedFile {
  readonly name: string;
  readonly format: string | null;
  readonly description: string | null;
}

/** A file that the conversation contains: uploaded before, or sent with the request. `message`: index of its message. */
export type InputFile = { readonly message: number } & (
  | { readonly id: string }
  | { readonly name: string; readonly content: Uint8Array }
  | { readonly url: string; readonly name: string | null }
);

/** A skill that a request uses. If `version` is null, the latest version is used. */
export interface SkillReference {
  readonly id: string;
  readonly version: number | null;
}

/** Calls of server tools in the earlier answers of a conversation. */
export interface EarlierCalls {
  readonly ids: readonly string[];
  /** Session in which the latest call ran, if the calls name it; else null. */
  readonly session: string | null;
}

export const noEarlierCalls: EarlierCalls = { ids: [], session: null };

/** Options of a request for the agent loop. */
export interface AgentOptions {
  readonly groups: readonly ToolGroup[];
  /** Names of the server tools (ServerTool) that the request offers to the model. */
  readonly serverTools: readonly string[];
  readonly web: WebOptions;
  /** Maximum number of calls of a tool in all rounds, by the name of the tool. Other tools have no limit of their own. */
  readonly maxUses: Readonly<Record<string, number>>;
  readonly skills: readonly SkillReference[];
  /**
   * true: the request asks for no agent feature, and its only server tools are those of all requests. The response then has
   * no extension events, because the client possibly does not support them.
   */
  readonly isPlain: boolean;
  /** Permission that the request asks for; null: the server's. A request can only tighten it. */
  readonly permission: Permission | null;
  /** Maximum number of rounds; null: the server's limit. */
  readonly maxRounds: number | null;
  /** Maximum number of calls of server tools in all rounds; null: no limit. */
  readonly maxCalls: number | null;
  /** Session that the request names; null: none. */
  readonly sessionId: string | null;
  /**
   * Calls of server tools in the conversation. If the request names no session and the conversation belongs to the
   * session of these calls, the run continues that session.
   */
  readonly earlierCalls: EarlierCalls;
  /**
   * Whether the run continues the last message of the conversation. This message is an answer that stopped at a limit
   * of tool rounds or calls.
   */
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

/** Record of a call in a response (`agentic_tool_calls`). */
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
 * left out, and `begin`, `finish` and `done` come only once. `finish` comes when the last round ends. `done` has the usage of
 * all rounds together.
 */
export type AgentEvent =
  | GenerateEvent
  /** First event of a run. */
  | { readonly type: "session"; readonly id: string }
  /**
   * A server tool is about to run or reports progress (`calling`), or has ended (`complete`). `call`: the call as the model
   * made it; `data` has the fields of the progress event.
   */
  | {
      readonly type: "tool_progress";
      readonly phase: "calling" | "complete";
      readonly round: number;
      /** Position of the call in its round, counted from 0. Calls of one round may end in another order. */
      readonly index: number;
      readonly call: ToolCall;
      readonly toolType: ToolType;
      /** Label of the MCP server of the tool; null: the tool belongs to none. */
      readonly server: string | null;
      readonly data: Readonly<Record<string, unknown>>;
      /** Record of the call in the phase `complete`; null in the phase `calling`. */
      readonly record: ToolCallRecord | null;
    }
  | { readonly type: "approval"; readonly request: ApprovalRequest }
  /** The model called server tools after the last round that may run them. `finish` follows, with the reason `length`. */
  | { readonly type: "rounds_reached" }
  /** `inline`: the content as text, or as base64 if it is binary; null if it exceeds the limits of fileLimits. */
  | { readonly type: "file"; readonly file: StoredFile; readonly inline: InlineContent | null };

export interface InlineContent {
  readonly text?: string;
  readonly data_base64?: string;
}

export type ApprovalDecision = {
  readonly decision: "approve" | "deny";
  readonly message: string | null;
  readonly rememberForSession: boolean;
  /** Data that a tool asked for; null: none. */
  readonly content: Readonly<Record<string, AnswerValue>> | null;
  /**
   * With `approve`: arguments (JSON text) with which the user has replaced the model's arguments. null: the model's
   * arguments are used.
   */
  readonly arguments: string | null;
};

export type ApprovalStatus = "resolved" | "queued" | "not_found";

/** Declaration of a server tool. */
export interface OfferedServerTool {
  readonly spec: ToolSpec;
  /** Label of the MCP server of the tool; null: the tool belongs to none. */
  readonly server: string | null;
}

export interface Agents {
  /** Tools that the server's settings enable. */
  readonly groups: readonly ToolGroup[];
  /** Whether the server sends calls of the clients' function tools to a URL (tool_dispatch_url). */
  readonly dispatches: boolean;
  /** The server's permission. A request can only tighten it. */
  readonly permission: Permission;
  /** Server tools that requests may offer to the model now. */
  readonly serverTools: readonly OfferedServerTool[];
  /**
   * Whether a request that names no MCP server offers the tools of all MCP servers. Tools that belong to no MCP server
   * are always offered.
   */
  readonly registersServerTools: boolean;
  /** Number of tools of MCP servers, and number of connected MCP servers; null: no MCP servers are configured. */
  readonly toolServers: { readonly tools: number; readonly connected: number } | null;
  /**
   * Runs a request. Like Inference.generate: iterating yields batches of events, aborting the signal ends the run and its
   * running tools at once, and failures arrive as one final `error` event.
   */
  run(
    request: GenerateRequest,
    agent: AgentOptions,
    signal: AbortSignal,
    onPrepared?: () => void,
  ): AsyncIterable<readonly AgentEvent[]>;
  /**
   * Decides an approval. `queued`: the run has not begun to wait for the decision. Throws invalid_value if `content` is not the
   * data that the approval asks for.
   */
  decide(id: string, decision: ApprovalDecision): ApprovalStatus;
  /** Ends the processes of a session and removes its work folder. */
  forget(sessionId: string): Promise<void>;
  /** Returns the approvals that the runs of a session wait for. */
  pending(sessionId: string): readonly ApprovalRequest[];
}
