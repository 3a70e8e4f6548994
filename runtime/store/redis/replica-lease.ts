// Replica lease: shows other replicas that this one runs. The lease is a key that expires; heartbeats renew it. A replica whose
// lease has ended counts as dead, whatever machine it ran on.
import type { RedisConnection } from "./redis-connection.ts";

/** Heartbeats per lease, so that one that is late or lost does not end it. */
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
   * Renews the lease after a loss of Redis. No replica could renew its lease meanwhile, so for the time of one lease all count
   * as alive.
   */
  reconnected(): void {
    this.#trustedUntil = performance.now() + this.#leaseMs;
    void this.#beat().catch(() => {});
  }

  /** Throws storage_unavailable. */
  async isAlive(replica: string): Promise<boolean> {
    if (performance.now() < this.#trustedUntil) return true;
    return (await this.#connection.command("EXISTS", keyOf(replica))) === 1;
  }

  /** Gives the lease up, so that other replicas need not wait for its end. */
  async stop(): Promise<void> {
    if (this.#timer !== null) clearInterval(this.#timer);
    await this.#connection.command("UNLINK", keyOf(this.own)).catch(() => {});
  }

  async #beat(): Promise<void> {
    await this.#connection.command("SET", keyOf(this.own), String(process.pid), "PX", this.#leaseMs);
  }
}

function keyOf(replica: string): string {
  return `{troupe}:owner:${replica}`;
}
