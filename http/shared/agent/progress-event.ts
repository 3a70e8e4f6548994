// Progress event: the event of a run that reports a call of a server tool.
import type { AgentEvent } from "../../../actors/api/agent/agents.ts";

export type ProgressEvent = Extract<AgentEvent, { readonly type: "tool_progress" }>;

/** Whether the call of a `complete` event has not succeeded: it has failed, was ended or was denied. */
export function hasFailed({ data: { status } }: Pick<ProgressEvent, "data">): boolean {
  return status !== undefined && status !== "success";
}
