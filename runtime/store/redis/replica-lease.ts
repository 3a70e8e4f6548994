// Replica lease: shows other replicas that this replica is running. The lease is a Redis key that expires unless heartbeats
// renew it. A replica without a lease counts as dead.
import { wallTime } from "../../clock.ts";
import type { RedisConnection } from "./redis-connection.ts";

/** Number of heartbeats during one lease. It is above 1, so that a late or lost heartbeat does not end the lease. */
const BEATS = 4;

export class ReplicaLease {
  /** Identity of this replica. */
  readonly own: string;
  readonly #connection: RedisConnection;
  readonly #leaseMs: number;
  #timer: NodeJS.Timeout | null = null;
  /** Time (performance.now) until which all replicas count as alive; see `reconnected`. */
  #trustedUntil = 0;

  constructor(connection: RedisConnection, replica: string, leaseMs: number) {
    this.#connection = connection;
    this.own = replica;
    this.#leaseMs = leaseMs;
  }

  /** Takes the lease and begins the heartbeats. Throws storage_unavailable. */
  async start(): Promise<void> {
    await this.#beat();
    this.#timer = setInterval(() => void this.#beat().catch(() => {}), this.#leaseMs / BEATS).unref();
  }

  /**
   * Renews the lease after Redis was lost. No replica could renew its lease without Redis, so all replicas count as alive for
   * the duration of one lease.
   */
  reconnected(): void {
    this.#trustedUntil = performance.now() + this.#leaseMs;
    void this.#beat().catch(() => {});
  }

  /** Returns whether a replica holds its lease. Throws storage_unavailable. */
  async isAlive(replica: string): Promise<boolean> {
    if (performance.now() < this.#trustedUntil) return true;
    return (await this.#connection.command("EXISTS", keyOf(replica))) === 1;
  }

  /** Returns the replicas that hold their leases, including this one. Throws storage_unavailable. */
  async replicas(): Promise<readonly string[]> {
    const ids = await this.#connection.command("ZRANGEBYSCORE", leasesKey, this.#redisNow(), "+inf");
    return (ids as readonly Buffer[]).map(String);
  }

  /** Stops the heartbeats and deletes the lease, so that other replicas need not wait until it expires. */
  async stop(): Promise<void> {
    if (this.#timer !== null) clearInterval(this.#timer);
    await Promise.all([
      this.#connection.command("UNLINK", keyOf(this.own)),
      this.#connection.command("ZREM", leasesKey, this.own),
    ]).catch(() => {});
  }

  async #beat(): Promise<void> {
    const now = this.#redisNow();
    await Promise.all([
      this.#connection.command("SET", keyOf(this.own), String(process.pid), "PX", this.#leaseMs),
      this.#connection.command("ZADD", leasesKey, now + this.#leaseMs, this.own),
      this.#connection.command("ZREMRANGEBYSCORE", leasesKey, "-inf", now - this.#leaseMs),
    ]);
  }

  #redisNow(): number {
    return Math.round(wallTime() + this.#connection.clockAheadMs);
  }
}

/** Sorted set of the replicas, by the time in ms since 1970 (of Redis) at which their leases end. */
const leasesKey = "{troupe}:leases";

function keyOf(replica: string): string {
  return `{troupe}:owner:${replica}`;
}
