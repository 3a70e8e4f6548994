// Runnable tool: a tool that the server runs, with the context and the outcome of its calls.
import type { ToolCall } from "../../../engines/generation.ts";
import { jsonOrText } from "../../../runtime/json-or-text.ts";
import type { ApprovalRequest, ToolType } from "../../api/agent/agents.ts";
import type { AskUser } from "../../api/agent/questions.ts";
import type { ToolProgress } from "../../api/agent/server-tools.ts";
import type { ToolOutcome } from "../../api/agent/tools.ts";
import { failureText } from "../../tools/failures.ts";

/** Context of a call: its run, round, session and client, and functions to reach the user. */
export interface CallContext {
  readonly run: string;
  readonly round: number;
  readonly session: string;
  readonly client: string;
  /** Index of the request within its session, counted from 0. */
  readonly turn: number;
  readonly signal: AbortSignal;
  readonly onProgress: (progress: ToolProgress) => void;
  /** Asks the user a question; null = the user cannot be asked. */
  readonly ask: AskUser | null;
}

/** Outcome of a call. The status `denied` means that the user or the policy denied the call, so it was not run. */
export interface CallOutcome extends Omit<ToolOutcome, "status"> {
  readonly status: ToolOutcome["status"] | "denied";
}

export interface RunnableTool {
  readonly type: ToolType;
  readonly about: ApprovalRequest["tool"];
  /** Label of the tool's MCP server; null = not a tool of an MCP server. */
  readonly server: string | null;
  /** Runs a call. Rejects with the reason if the call fails; the model reads the reason, and the run continues. */
  run(call: ToolCall, context: CallContext): Promise<CallOutcome>;
}

/** Returns a key that is unique among the calls of all runs. */
export function callKey({ id }: ToolCall, { run, round }: CallContext): string {
  return `${run}/${round}/${id}`;
}

export const nothingMade = { images: [], videoFrames: [], files: [] } as const;

/** Returns the outcome of a call whose result is a text. */
export function outcomeOfText(call: ToolCall, content: string): CallOutcome {
  return { ...nothingMade, status: "success", content, data: { arguments: jsonOrText(call.arguments), content } };
}

/** Returns the outcome of a failed call. `content`: the result that the model reads. */
export function outcomeOfError(
  call: ToolCall,
  { message, code }: { readonly message: string; readonly code: string },
  content = failureText(message),
): CallOutcome {
  const { data, ...outcome } = outcomeOfText(call, content);
  return { ...outcome, status: "error", data: { ...data, error_code: code } };
}

/** Returns the outcome of a call that was denied. */
export function outcomeOfDenial(content: string): CallOutcome {
  return { ...nothingMade, status: "denied", content, data: { content } };
}
