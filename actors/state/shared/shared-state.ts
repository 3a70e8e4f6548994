// Shared state: the stores, leases, event streams and questions of replicas over one Redis or Valkey server. Runs on the state
// thread. Questions of other replicas are passed to the main thread, whose answers come back as messages.
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

/** Attempts to write again what a Redis server may have lost, and milliseconds between them. */
const RESTORE_TRIES = 30;
const RESTORE_RETRY_MS = 1000;
/** Time limit of the main thread for an answer, shorter than that of the replica that asks. */
const ANSWER_MS = 4500;

/** Reports of the state thread to the main thread. */
export type SharedStateReport =
  | { readonly kind: "health"; readonly health: SharedStateHealth }
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
  /** Answer of the main thread to a question. */
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
  #isStopping = false;
  readonly #report: (report: SharedStateReport) => void;
  #lastQuestion = 0;

  private constructor(
    connection: RedisConnection,
    lease: ReplicaLease,
    replica: string,
    report: (report: SharedStateReport) => void,
  ) {
    this.#connection = connection;
    this.#lease = lease;
    this.#report = report;
    this.owners = lease;
    this.#streams = new EventStreams(connection);
    this.#bus = new ReplicaBus(connection, replica, (content) => this.#question(content));
  }

  /** Connects and takes the lease of this replica. Throws config_invalid. */
  static async open(init: SharedStateInit, report: (report: SharedStateReport) => void): Promise<SharedState> {
    let lease: ReplicaLease | null = null;
    let shared: SharedState | null = null;
    const connection = await RedisConnection.open(init.url, storeScripts, ({ isReplaced, ...health }) => {
      if (health.isConnected) lease?.reconnected();
      if (isReplaced) void shared?.restore();
      report({ kind: "health", health });
    });
    lease = new ReplicaLease(connection, init.replica, init.leaseMs);
    await lease.start();
    shared = new SharedState(connection, lease, init.replica, report);
    return shared;
  }

  /**
   * Adds a function that writes again what Redis may have lost. It is called when a server of Redis was restarted or replaced, until it
   * does not throw.
   */
  onReplaced(restore: () => Promise<void>): void {
    this.#restores.push(restore);
  }

  /** Writes again what Redis may have lost. Never rejects. */
  async restore(): Promise<void> {
    for (const restore of this.#restores) {
      for (let tries = 0; tries < RESTORE_TRIES && !this.#isStopping; tries++) {
        const isDone = await restore().then(
          () => true,
          () => false,
        );
        if (isDone) break;
        await sleep(RESTORE_RETRY_MS, undefined, { ref: false });
      }
    }
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

  /** Waits for the writes of the stores, gives the lease up and disconnects. */
  async #stop(): Promise<void> {
    this.#isStopping = true;
    await Promise.all(this.#stores.map((store) => store.close()));
    this.#bus.close();
    this.#streams.close();
    await this.#lease.stop();
    this.#connection.close();
  }

  async #question(content: unknown): Promise<unknown> {
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
