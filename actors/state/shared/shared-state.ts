// Shared state: the stores, leases, event streams and messages of replicas, over one Redis or Valkey server. Runs on the state
// thread. Requests of other replicas are forwarded to the main thread, which responds with messages.
import { setTimeout as sleep } from "node:timers/promises";
import type { Behaviour } from "../../../runtime/actor/behaviour.ts";
import { DeferredReply } from "../../../runtime/actor/deferred-reply.ts";
import { type ErrorRecord, fromErrorRecord, ServerError } from "../../../runtime/errors.ts";
import { EventStreams } from "../../../runtime/store/redis/event-streams.ts";
import { RedisConnection, type StoreStatistics } from "../../../runtime/store/redis/redis-connection.ts";
import { RedisStore } from "../../../runtime/store/redis/redis-store.ts";
import { ReplicaBus } from "../../../runtime/store/redis/replica-bus.ts";
import { ReplicaLease } from "../../../runtime/store/redis/replica-lease.ts";
import { storeScripts } from "../../../runtime/store/redis/scripts.ts";
import type { Store, StoreLimits } from "../../../runtime/store/store.ts";
import type { FollowedEvents, PublishedEvents, Replicas, SharedStateHealth } from "../../api/state/replicas.ts";
import type { SharedStateInit } from "../../messages.ts";
import type { Owners } from "./owners.ts";

/** Milliseconds between attempts to rewrite the data that a Redis server may have lost. */
const RESTORE_RETRY_MS = 1000;
/** Time limit in ms for the main thread to respond, shorter than the time limit of the requesting replica. */
const ANSWER_MS = 4500;

/** Reports of the state thread to the main thread. */
export type SharedStateReport =
  | { readonly kind: "health"; readonly health: SharedStateHealth }
  /** Whether this replica is rewriting data that Redis may have lost. */
  | { readonly kind: "restoring"; readonly isRestoring: boolean }
  | { readonly kind: "warning"; readonly fields: object; readonly message: string }
  | { readonly kind: "question"; readonly number: number; readonly content: unknown };

/** Protocol of the actor `replicas`. */
export interface ReplicaProtocol {
  publish(events: PublishedEvents): Promise<void>;
  follow(request: Parameters<Replicas["follow"]>[0]): Promise<readonly FollowedEvents[] | null>;
  ask(request: {
    readonly to: string | null;
    readonly content: unknown;
    readonly isFirstEnough: boolean;
    readonly needsAll: boolean;
  }): Promise<readonly unknown[]>;
  /** Passes on the main thread's response to a request of another replica. */
  answered(answer: { readonly number: number; readonly value: unknown; readonly error: ErrorRecord | null }): void;
  statistics(message: undefined): StoreStatistics;
}

interface Question {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: unknown) => void;
}

export class SharedState {
  readonly owners: Owners;
  readonly #connection: RedisConnection;
  readonly #lease: ReplicaLease;
  readonly #streams: EventStreams;
  readonly #bus: ReplicaBus;
  readonly #questions = new Map<number, Question>();
  readonly #stores: Store<unknown>[] = [];
  readonly #restores: (() => Promise<void>)[] = [];
  readonly #lossListeners: ((isLost: boolean) => void)[] = [];
  /** Number of replacements of the Redis server that have not been followed by a complete rewrite yet. */
  #replacements = 0;
  /** Whether requests of other replicas are passed on to the main thread. */
  #isReady: boolean;
  #isStopping = false;
  readonly #report: (report: SharedStateReport) => void;
  #lastQuestion = 0;

  private constructor(
    connection: RedisConnection,
    lease: ReplicaLease,
    replica: string,
    report: (report: SharedStateReport) => void,
    isRestart: boolean,
  ) {
    this.#isReady = isRestart;
    this.#connection = connection;
    this.#lease = lease;
    this.#report = report;
    this.owners = lease;
    this.#streams = new EventStreams(connection);
    this.#bus = new ReplicaBus(connection, replica, (content) => this.#question(content), lease);
  }

  /**
   * Connects to Redis and acquires the lease of this replica. `isRestart`: whether the main thread already had a state thread, so
   * that it may have something to respond before `ready` is called. Throws config_invalid or storage_unavailable.
   */
  static async open(
    init: SharedStateInit,
    report: (report: SharedStateReport) => void,
    isRestart = false,
  ): Promise<SharedState> {
    let lease: ReplicaLease | null = null;
    let shared: SharedState | null = null;
    const connection = await RedisConnection.open(init.url, storeScripts, ({ isReplaced, ...health }) => {
      if (health.isConnected) lease?.reconnected();
      shared?.changed(health.isConnected, isReplaced);
      report({ kind: "health", health });
    });
    lease = new ReplicaLease(connection, init.replica, init.leaseMs);
    await lease.start();
    shared = new SharedState(connection, lease, init.replica, report, isRestart);
    return shared;
  }

  /**
   * Adds a function that rewrites data that Redis may have lost. After the Redis server was restarted or replaced, all these
   * functions are called repeatedly until none of them throws.
   */
  onReplaced(restore: () => Promise<void>): void {
    this.#restores.push(restore);
  }

  /** Adds a listener. It is called with true when Redis becomes unreachable, and with false when Redis is back with all data. */
  onLoss(listener: (isLost: boolean) => void): void {
    this.#lossListeners.push(listener);
  }

  /** Call when the main thread can respond to requests of other replicas. */
  ready(): void {
    this.#isReady = true;
  }

  /** Called when the connection to Redis is lost and when it is restored. */
  changed(isConnected: boolean, isReplaced: boolean): void {
    if (isReplaced && ++this.#replacements === 1) void this.#restore();
    else if (this.#replacements === 0) this.#tellLoss(!isConnected);
  }

  /** Rewrites the data that Redis may have lost, until everything is rewritten or this replica stops. Never rejects. */
  async #restore(): Promise<void> {
    this.#report({ kind: "restoring", isRestoring: true });
    for (let isReported = false; this.#replacements > 0 && !this.#isStopping; ) {
      const count = this.#replacements;
      const results = await Promise.allSettled(this.#restores.map((restore) => restore()));
      const failure = results.find((result) => result.status === "rejected");
      if (failure === undefined) {
        // Another replacement during the rewrite requires another rewrite.
        this.#replacements -= count;
        continue;
      }
      const reason = String((failure.reason as Error).message);
      const message = "what Redis may have lost could not be written again; trying until it is";
      if (!isReported) this.#report({ kind: "warning", fields: { reason }, message });
      isReported = true;
      await sleep(RESTORE_RETRY_MS, undefined, { ref: false });
    }
    this.#report({ kind: "restoring", isRestoring: false });
    if (this.#connection.isConnected) this.#tellLoss(false);
  }

  #tellLoss(isLost: boolean): void {
    for (const listener of this.#lossListeners) listener(isLost);
  }

  store<Head>(name: string, limits: StoreLimits): Store<Head> {
    const store = new RedisStore<Head>(this.#connection, name, limits);
    this.#stores.push(store as Store<unknown>);
    return store;
  }

  behaviour(): Behaviour<ReplicaProtocol> {
    return {
      publish: (events) => new DeferredReply(this.#streams.append(events)),
      follow: ({ id, after, waitMs }) => new DeferredReply(this.#streams.read(id, after, waitMs)),
      ask: ({ to, content, isFirstEnough, needsAll }) =>
        new DeferredReply(this.#bus.ask(to, content, isFirstEnough, needsAll)),
      answered: ({ number, value, error }) => {
        const question = this.#questions.get(number);
        if (error === null) question?.resolve(value);
        else question?.reject(fromErrorRecord(error));
      },
      statistics: () => this.#connection.statistics(),
      onStop: () => this.#stop(),
    };
  }

  /** Waits for the pending writes of the stores, releases the lease and disconnects. */
  async #stop(): Promise<void> {
    this.#isStopping = true;
    await Promise.all(this.#stores.map((store) => store.close()));
    this.#bus.close();
    this.#streams.close();
    await this.#lease.stop();
    this.#connection.close();
  }

  async #question(content: unknown): Promise<unknown> {
    // The main thread is not ready, so nothing is running on this replica yet.
    if (!this.#isReady) return null;
    const number = ++this.#lastQuestion;
    let timer: NodeJS.Timeout | undefined;
    try {
      return await new Promise<unknown>((resolve, reject) => {
        timer = setTimeout(() => reject(new ServerError("timeout", "the replica did not answer in time")), ANSWER_MS);
        this.#questions.set(number, { resolve, reject });
        this.#report({ kind: "question", number, content });
      });
    } finally {
      clearTimeout(timer);
      this.#questions.delete(number);
    }
  }
}
