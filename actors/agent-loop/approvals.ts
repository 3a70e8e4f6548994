// Approvals: the tool calls of all runs that wait for a user's decision. A decision may arrive over any connection, even before
// the run waits for it. A call without a decision is denied after five minutes (spec: Approval states).
import { randomUUID } from "node:crypto";
import type { Clock } from "../../runtime/clock.ts";
import type { ApprovalDecision, ApprovalRequest, ApprovalStatus } from "../api/agent/agents.ts";
import type { AnswerValue, QuestionSchema } from "../api/agent/questions.ts";
import { checkAnswer } from "./check-answer.ts";

/** Milliseconds after which a server denies a call without a decision. Not used by the command `run`, which has no limit. */
export const approvalTimeoutMs = 5 * 60_000;

/**
 * Outcome of an approval: the call runs, or the model gets the text `denial` as the result of the call.
 * - `remembers`: the user approves all further actions of the session.
 * - `content`: the data that a tool requested from the user.
 * - `arguments`: the user's edited arguments, which replace the model's; null = not edited.
 * - `isDecision`: true if the user denied; false if the time limit passed or the call was cancelled.
 */
export type Verdict =
  | {
      readonly isApproved: true;
      readonly remembers: boolean;
      readonly content: Readonly<Record<string, AnswerValue>>;
      readonly arguments: string | null;
    }
  | { readonly isApproved: false; readonly denial: string; readonly isDecision: boolean };

interface Waiting {
  readonly request: ApprovalRequest;
  /** JSON schema of the data that the decision must contain; null = no data. */
  readonly schema: QuestionSchema | null;
  /** Decision that arrived before the run waited for it; null = no decision yet. */
  early: Verdict | null;
  /** Resolves the wait; null = the run is not waiting yet. */
  settle: ((verdict: Verdict) => void) | null;
}

export class Approvals {
  readonly #clock: Clock;
  readonly #limitMs: number | null;
  readonly #waiting = new Map<string, Waiting>();

  /** `limitMs`: milliseconds after which a call without a decision is denied; null = no limit. */
  constructor(clock: Clock, limitMs: number | null) {
    this.#clock = clock;
    this.#limitMs = limitMs;
  }

  /**
   * Registers an approval request: for a call that needs a decision, or for a question that a tool asks the user. `schema`:
   * schema of the answer to the question; null for a decision on a call. Returns the request with a new id. The caller must then
   * call `wait`.
   */
  open(request: Omit<ApprovalRequest, "type" | "approval_id">, schema: QuestionSchema | null = null): ApprovalRequest {
    const opened: ApprovalRequest = {
      type: "agentic_tool_approval_required",
      approval_id: `appr_${randomUUID().replaceAll("-", "")}`,
      ...request,
    };
    this.#waiting.set(opened.approval_id, { request: opened, schema, early: null, settle: null });
    return opened;
  }

  /** Waits for the decision. After the time limit, or when the signal is aborted, the call is denied. */
  async wait({ approval_id: id, tool }: ApprovalRequest, signal: AbortSignal): Promise<Verdict> {
    const waiting = this.#waiting.get(id);
    if (waiting === undefined) return timedOut;
    if (waiting.early !== null || signal.aborted) {
      this.#waiting.delete(id);
      return waiting.early === null || signal.aborted ? cancelled(tool.label) : waiting.early;
    }
    return await new Promise<Verdict>((resolve) => {
      const settle = (verdict: Verdict): void => {
        stopTimer();
        signal.removeEventListener("abort", abort);
        this.#waiting.delete(id);
        resolve(verdict);
      };
      const abort = (): void => settle(cancelled(tool.label));
      const limitMs = this.#limitMs;
      const stopTimer = limitMs === null ? () => {} : this.#clock.setTimeout(() => settle(timedOut), limitMs);
      signal.addEventListener("abort", abort, { once: true });
      waiting.settle = settle;
    });
  }

  /** Records a decision. Throws invalid_value if its data does not match the schema of the question. */
  decide(id: string, decision: ApprovalDecision): ApprovalStatus {
    const waiting = this.#waiting.get(id);
    // Only the first decision counts: once a call is decided, its id is unknown.
    if (waiting === undefined || waiting.early !== null) return "not_found";
    if (decision.decision === "approve") checkAnswer(waiting.schema, decision.content);
    const verdict = verdictOf(decision, waiting.request.tool.label);
    if (waiting.settle !== null) {
      waiting.settle(verdict);
      return "resolved";
    }
    waiting.early = verdict;
    return "queued";
  }

  /** Returns the calls of a session that have no decision yet. */
  pending(session: string): readonly ApprovalRequest[] {
    return [...this.#waiting.values()]
      .filter(({ request, early }) => request.session_id === session && early === null)
      .map(({ request }) => request);
  }
}

const timedOut: Verdict = { isApproved: false, denial: "Approval timed out.", isDecision: false };

function cancelled(label: string): Verdict {
  return { isApproved: false, denial: `${label} was not run: the request was cancelled.`, isDecision: false };
}

function verdictOf(given: ApprovalDecision, label: string): Verdict {
  const { decision, message, rememberForSession: remembers, content, arguments: edited } = given;
  if (decision === "approve") return { isApproved: true, remembers, content: content ?? {}, arguments: edited };
  return { isApproved: false, denial: message ?? `${label} was denied by the user.`, isDecision: true };
}
