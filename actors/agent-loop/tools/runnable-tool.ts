// Runnable tool: a tool that the server runs, with the context and the outcome of its calls.
import type { ToolCall } from "../../../engines/generation.ts";
import { jsonOrText } from "../../../runtime/json-or-text.ts";
import type { ApprovalRequest, ToolType } from "../../api/agent/agents.ts";
import type { AskUser } from "../../api/agent/questions.ts";
import type { ToolProgress } from "../../api/agent/server-tools.ts";
import type { ToolOutcome } from "../../api/agent/tools.ts";
import { failureText } from "../../tools/failures.ts";

/** Run, round, session and client to which a call belongs, and its connection to the user. */
export interface CallContext {
  readonly run: string;
  readonly round: number;
  readonly session: string;
  readonly client: string;
  /** Number of the request in its session, counted from 0. */
  readonly turn: number;
  readonly signal: AbortSignal;
  readonly onProgress: (progress: ToolProgress) => void;
  /** Asks the user; null: the user cannot be asked. */
  readonly ask: AskUser | null;
}

/** `denied`: the call was not run, because the user or the policy denied it. */
export interface CallOutcome extends Omit<ToolOutcome, "status"> {
  readonly status: ToolOutcome["status"] | "denied";
}

export interface RunnableTool {
  readonly type: ToolType;
  readonly about: ApprovalRequest["tool"];
  /** Label of the MCP server of the tool; null: the tool belongs to none. */
  readonly server: string | null;
  /** Rejects with the reason if the call fails. The model reads the reason, and the run continues. */
  run(call: ToolCall, context: CallContext): Promise<CallOutcome>;
}

/** Identifies a call among those of all runs. */
export function callKey({ id }: ToolCall, { run, round }: CallContext): string {
  return `${run}/${round}/${id}`;
}

export const nothingMade = { images: [], videoFrames: [], files: [] } as const;

/** Returns the outcome of a call whose result is a text. */
export function outcomeOfText(call: ToolCall, content: string): CallOutcome {
  return { ...nothingMade, status: "success", content, data: { arguments: jsonOrText(call.arguments), content } };
}

/** Returns the outcome of a call that failed for a reason. `content`: what the model reads. */
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
