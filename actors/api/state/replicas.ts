// Replicas: the interface that http/ uses to reach the other servers with the same shared state (state_url). The state thread
// implements it. Without shared state there is none.
import type { EngineMetric } from "../engine-metric.ts";

/** Questions to other replicas. Each is answered with plain data; null: the replica has no answer. */
export interface ReplicaQuestions {
  /** Cancel a background response. Resolves to true when its last state is stored; null: it does not run there. */
  readonly cancelResponse: { readonly id: string };
  /** End a response that is being deleted, without storing it. */
  readonly forgetResponse: { readonly id: string };
  /**
   * Wait for the writes of a response whose id a client has. Resolves to true, also if they still wait after a few seconds; null: it
   * does not run there, and no write of it waits. A replica that writes again what Redis may have lost does so first.
   */
  readonly settleResponse: { readonly id: string };
  /** Decide on a call. `decision` is an ApprovalDecision; the answer is an ApprovalStatus. */
  readonly decideApproval: { readonly id: string; readonly decision: unknown };
  /** The answer is a list of ApprovalRequest. */
  readonly pendingApprovals: { readonly session: string };
  /** The answer is a list of AdapterFailure. */
  readonly adapterFailures: { readonly model: string };
  /** A notification of an MCP client (JSON) that may concern a request there. */
  readonly mcpNotification: { readonly session: string; readonly message: string };
  /** End the runs of a session that is being deleted. */
  readonly forgetSession: { readonly session: string };
}

export type QuestionKind = keyof ReplicaQuestions;
export type AnswerReplica<Kind extends QuestionKind> = (question: ReplicaQuestions[Kind]) => unknown;

/** Events of a running response, as sent to clients, in UTF-8. */
export interface PublishedEvents {
  readonly id: string;
  /** Numbers of the first of the events, and of the event after the last one. */
  readonly first: number;
  readonly next: number;
  readonly text: Uint8Array;
  /** Number of the first event that is still kept. Earlier ones are removed. */
  readonly keptFrom: number;
  /** Whether no event follows. */
  readonly isEnd: boolean;
}

export type FollowedEvents = Omit<PublishedEvents, "id" | "keptFrom">;

export interface SharedStateHealth {
  readonly isConnected: boolean;
  /** Why it is not connected; "" if it is. Has no passwords. */
  readonly reason: string;
}

export interface Replicas {
  /** Identity of this replica, also in the log line of its start. */
  readonly id: string;
  health(): SharedStateHealth;
  /**
   * Whether this replica lost the shared state in the last seconds, or still writes again what Redis may have lost; other replicas
   * may still be disconnected.
   */
  wasLost(): boolean;
  /** Resolves when this replica has written again what Redis may have lost. */
  restored(): Promise<void>;
  /** Publishes events for readers on other replicas. Repeated events are ignored. Throws storage_unavailable. */
  publish(events: PublishedEvents): Promise<void>;
  /**
   * Returns the published events after number `after`, or waits for them for `waitMs`; null: there are none yet. Throws
   * storage_unavailable.
   */
  follow(request: {
    readonly id: string;
    readonly after: number;
    readonly waitMs: number;
  }): Promise<readonly FollowedEvents[] | null>;
  /**
   * Asks the replica `to`, or all others if it is null. Resolves to the answers that are not null; with `isFirstEnough`, to the
   * first. Throws the error of a replica if there is no answer, and storage_unavailable, also with `needsAll` (default false) if there
   * is no answer because a replica that is alive does not answer.
   */
  ask<Kind extends QuestionKind>(
    to: string | null,
    kind: Kind,
    question: ReplicaQuestions[Kind],
    isFirstEnough: boolean,
    needsAll?: boolean,
  ): Promise<readonly unknown[]>;
  /** Adds a handler of questions. The first answer of all handlers that is not null is sent. */
  answer<Kind extends QuestionKind>(kind: Kind, handler: AnswerReplica<Kind>): void;
  metrics(): Promise<readonly EngineMetric[]>;
}
