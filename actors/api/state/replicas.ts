// Replicas: the interface that http/ uses to reach the other servers with the same shared state (state_url). The state thread
// implements it. Without shared state, there is no implementation.
import type { EngineMetric } from "../engine-metric.ts";

/** Requests to other replicas. A replica responds with plain data; null = it has nothing to respond. */
export interface ReplicaQuestions {
  /** Cancels a background response. Resolves to true when its final state is stored; null = the asked replica does not run the response. */
  readonly cancelResponse: { readonly id: string };
  /** Ends a response that is being deleted, without storing it. */
  readonly forgetResponse: { readonly id: string };
  /**
   * Waits until the asked replica has stored its pending writes of a response, but only a few seconds. Resolves to true in both
   * cases; null = the replica does not run the response and has no pending writes of it. A replica that is rewriting data that
   * Redis may have lost finishes that first.
   */
  readonly settleResponse: { readonly id: string };
  /** Decides on a tool call. `decision` is an ApprovalDecision; the response is an ApprovalStatus. */
  readonly decideApproval: { readonly id: string; readonly decision: unknown };
  /** Lists pending approvals. The response is a list of ApprovalRequest; null = the asked replica has none. */
  readonly pendingApprovals: { readonly session: string };
  /** Lists failed adapter loads. The response is a list of AdapterFailure. */
  readonly adapterFailures: { readonly model: string };
  /** Forwards a notification of an MCP client (JSON) that may concern a request on the other replica. */
  readonly mcpNotification: { readonly session: string; readonly message: string };
  /** Ends the runs of a session that is being deleted. */
  readonly forgetSession: { readonly session: string };
}

export type QuestionKind = keyof ReplicaQuestions;
export type AnswerReplica<Kind extends QuestionKind> = (question: ReplicaQuestions[Kind]) => unknown;

/** Events of a running response, as sent to clients, in UTF-8. */
export interface PublishedEvents {
  readonly id: string;
  /** Number of the first event, and number after the last event. */
  readonly first: number;
  readonly next: number;
  readonly text: Uint8Array;
  /** Number of the oldest event that is still kept; earlier events are removed. */
  readonly keptFrom: number;
  /** Whether the last event of the response is included. */
  readonly isEnd: boolean;
}

export type FollowedEvents = Omit<PublishedEvents, "id" | "keptFrom">;

export interface SharedStateHealth {
  readonly isConnected: boolean;
  /** Reason why the shared state is not connected; "" if connected. Never contains passwords. */
  readonly reason: string;
}

export interface Replicas {
  /** Identity of this replica, also logged at its start. */
  readonly id: string;
  health(): SharedStateHealth;
  /**
   * Returns whether this replica lost the connection to the shared state in the last seconds, or is still rewriting data that
   * Redis may have lost. In both cases, other replicas may still be disconnected.
   */
  wasLost(): boolean;
  /** Resolves when this replica has rewritten the data that Redis may have lost. */
  restored(): Promise<void>;
  /** Publishes events for readers on other replicas. Repeated events are ignored. Throws storage_unavailable. */
  publish(events: PublishedEvents): Promise<void>;
  /**
   * Returns the published events after number `after`, waiting up to `waitMs` for them; null = no events yet. Throws
   * storage_unavailable.
   */
  follow(request: {
    readonly id: string;
    readonly after: number;
    readonly waitMs: number;
  }): Promise<readonly FollowedEvents[] | null>;
  /**
   * Sends a request to the replica `to`, or to all others if `to` is null. Resolves to the non-null responses; with
   * `isFirstEnough`, to the first of them. If there is none, throws the error that a replica returned. Throws
   * storage_unavailable; with `needsAll` (default false), also if there is no response and a live replica did not reply.
   */
  ask<Kind extends QuestionKind>(
    to: string | null,
    kind: Kind,
    question: ReplicaQuestions[Kind],
    isFirstEnough: boolean,
    needsAll?: boolean,
  ): Promise<readonly unknown[]>;
  /** Adds a handler for a kind of request. The first non-null response of all handlers is sent. */
  answer<Kind extends QuestionKind>(kind: Kind, handler: AnswerReplica<Kind>): void;
  metrics(): Promise<readonly EngineMetric[]>;
}
