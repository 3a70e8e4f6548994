// Agent runs on several replicas: approval decisions, lists of waiting tool calls and deletions of sessions are forwarded to
// the replica that runs the agent.
import type { Agents, ApprovalDecision, ApprovalRequest, ApprovalStatus } from "../../actors/api/agent/agents.ts";
import type { Replicas } from "../../actors/api/state/replicas.ts";

/** Registers the handlers for requests that other replicas send about the agent runs of this replica. */
export function answerReplicas(replicas: Replicas, agents: Agents): void {
  replicas.answer("decideApproval", ({ id, decision }) => {
    const status = agents.decide(id, decision as ApprovalDecision);
    return status === "not_found" ? null : status;
  });
  replicas.answer("pendingApprovals", ({ session }) => {
    const calls = agents.pending(session);
    // An empty list is no answer: the calls may wait on a replica that does not answer, which `pending` must report.
    return calls.length === 0 ? null : calls;
  });
  replicas.answer("forgetSession", async ({ session }) => {
    await agents.forget(session);
    return true;
  });
}

/**
 * Approves or denies a waiting tool call of any replica. Throws storage_unavailable if the call does not wait on this replica
 * and a replica that may have it does not answer.
 */
export async function decide(
  agents: Agents,
  replicas: Replicas | null,
  id: string,
  decision: ApprovalDecision,
): Promise<ApprovalStatus> {
  const status = agents.decide(id, decision);
  if (status !== "not_found" || replicas === null) return status;
  const [other] = await replicas.ask(null, "decideApproval", { id, decision }, true, true);
  return (other as ApprovalStatus | undefined) ?? "not_found";
}

/**
 * Returns the tool calls of a session that wait for approval, from all replicas. Throws storage_unavailable if none is found
 * and a replica that may have some does not answer.
 */
export async function pending(
  agents: Agents,
  replicas: Replicas | null,
  session: string,
): Promise<readonly ApprovalRequest[]> {
  const own = agents.pending(session);
  if (replicas === null) return own;
  const others = await replicas.ask(null, "pendingApprovals", { session }, false, own.length === 0);
  return [...own, ...(others as (readonly ApprovalRequest[])[]).flat()];
}
