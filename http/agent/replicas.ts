// Agent runs on several replicas: a decision, the list of waiting calls and the end of a session reach the replica that runs
// them.
import type { Agents, ApprovalDecision, ApprovalRequest, ApprovalStatus } from "../../actors/api/agent/agents.ts";
import type { Replicas } from "../../actors/api/state/replicas.ts";

/** Answers the questions of other replicas about the runs of this one. */
export function answerReplicas(replicas: Replicas, agents: Agents): void {
  replicas.answer("decideApproval", ({ id, decision }) => {
    const status = agents.decide(id, decision as ApprovalDecision);
    return status === "not_found" ? null : status;
  });
  replicas.answer("pendingApprovals", ({ session }) => agents.pending(session));
  replicas.answer("forgetSession", async ({ session }) => {
    await agents.forget(session);
    return true;
  });
}

/** Decides on a call of any replica. Throws storage_unavailable if it does not wait here and others cannot be asked. */
export async function decide(
  agents: Agents,
  replicas: Replicas | null,
  id: string,
  decision: ApprovalDecision,
): Promise<ApprovalStatus> {
  const status = agents.decide(id, decision);
  if (status !== "not_found" || replicas === null) return status;
  const [other] = await replicas.ask(null, "decideApproval", { id, decision }, true);
  return (other as ApprovalStatus | undefined) ?? "not_found";
}

/** Returns the calls of a session that wait for a decision, on all replicas. */
export async function pending(
  agents: Agents,
  replicas: Replicas | null,
  session: string,
): Promise<readonly ApprovalRequest[]> {
  const own = agents.pending(session);
  if (replicas === null) return own;
  const others = await replicas.ask(null, "pendingApprovals", { session }, false);
  return [...own, ...(others as (readonly ApprovalRequest[])[]).flat()];
}
