// Replica lease: shows other replicas that this replica is running. The lease is a Redis key that expires unless heartbeats
// renew it. A replica without a lease counts as dead.
import type { RedisConnection } from "./redis-connection.ts";

/** Number of heartbeats during one lease. It is above 1, so that a late or lost heartbeat does not end the lease. */
const BEATS = 4;
/** Set of the replicas that have taken a lease and not given it up. The replica that finds one without a lease removes it. */
const replicasKey = "{troupe}:owners";

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
    const ids = ((await this.#connection.command("SMEMBERS", replicasKey)) as readonly Buffer[]).map(String);
    const counts = await Promise.all(ids.map((id) => this.#connection.command("EXISTS", keyOf(id))));
    const dead = ids.filter((_, i) => counts[i] !== 1);
    if (dead.length > 0) await this.#connection.command("SREM", replicasKey, ...dead);
    return ids.filter((id) => !dead.includes(id));
  }

  /** Stops the heartbeats and deletes the lease, so that other replicas need not wait until it expires. */
  async stop(): Promise<void> {
    if (this.#timer !== null) clearInterval(this.#timer);
    await Promise.all([
      this.#connection.command("UNLINK", keyOf(this.own)),
      this.#connection.command("SREM", replicasKey, this.own),
    ]).catch(() => {});
  }

  async #beat(): Promise<void> {
    await Promise.all([
      this.#connection.command("SET", keyOf(this.own), String(process.pid), "PX", this.#leaseMs),
      this.#connection.command("SADD", replicasKey, this.own),
    ]);
  }
}

function keyOf(replica: string): string {
  return `{troupe}:owner:${replica}`;
}
