// Recent responses: what this replica has stored and deleted in the last minute, not counting the time in which Redis is
// unreachable. Redis may lose writes that it has acknowledged, because replication is asynchronous, and a restarted server only
// has what was on its disk. So ResponseStore.restore repeats these writes when another Redis server has replaced the previous
// one. Runs on the state thread.
import type { Entry } from "../../../runtime/store/store.ts";
import type { ResponseUpdate, StoredResponse } from "../../api/stored-responses.ts";
import type { KeptHead } from "../kept-head.ts";

/** Time in ms for which a write is remembered: longer than a failover takes, and shorter than the lifetime of tombstones. */
const KEPT_MS = 60_000;
/** Maximum total size in bytes of the remembered responses. Beyond it, the oldest ones are dropped. */
const MOST_BYTES = 32 * 2 ** 20;
/** Estimated size in bytes of a response without its texts. */
const BASE_BYTES = 512;

export interface RecentResponse {
  /** The whole response; null = it was added more than KEPT_MS ago, so that Redis can have lost only its last update. */
  readonly record: StoredResponse | null;
  /** Last update of the response; null = not updated. */
  readonly update: ResponseUpdate | null;
  /** Deletion of the response; null = not deleted. */
  readonly deletion: Deletion | null;
  /** Whether the response has output but has not ended, so that no server may generate it again. */
  readonly hasBegun: boolean;
}

/** A deletion. `tombstone`: entry that prevents the generating replica from storing the response again; null = not needed. */
export interface Deletion {
  readonly tombstone: Entry<KeptHead> | null;
}

interface Kept extends RecentResponse {
  readonly atMs: number;
  readonly bytes: number;
}

export class RecentResponses {
  readonly #now: () => number;
  /** Recent responses by id, oldest write first. */
  readonly #kept = new Map<string, Kept>();
  #bytes = 0;
  /** Times of the responses of the last minute that were dropped because of the size limit, oldest first. */
  readonly #dropped: number[] = [];
  /** Total milliseconds for which the clock was paused. */
  #stoppedMs = 0;
  /** Time at which the clock was paused; null = the clock is running. */
  #stoppedAtMs: number | null = null;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  added(record: StoredResponse): void {
    this.#keep(record.id, { record, update: null, deletion: null, hasBegun: false });
  }

  updated(update: ResponseUpdate): void {
    const record = this.get(update.id)?.record ?? null;
    const updated = record === null ? null : { ...withoutRestart(record), ...update };
    this.#keep(update.id, { record: updated, update, deletion: null, hasBegun: false });
  }

  /** Records that a response has output, so that no server may generate it again. */
  begun(id: string): void {
    const { record = null, update = null, deletion = null } = this.get(id) ?? {};
    if (deletion === null) {
      this.#keep(id, { record: record && withoutRestart(record), update, deletion, hasBegun: true });
    }
  }

  deleted(id: string, tombstone: Entry<KeptHead> | null): void {
    this.#keep(id, { record: null, update: null, deletion: { tombstone }, hasBegun: false });
  }

  /** Drops a response, unless it was deleted: a deletion is kept. */
  forget(id: string): void {
    if (this.get(id)?.deletion === null) this.#drop(id);
  }

  /** Pauses the clock while Redis is unreachable, so that nothing expires, or resumes it. */
  hold(isHeld: boolean): void {
    if (isHeld) this.#stoppedAtMs ??= this.#now();
    else if (this.#stoppedAtMs !== null) {
      this.#stoppedMs += this.#now() - this.#stoppedAtMs;
      this.#stoppedAtMs = null;
    }
  }

  /** Returns the number of responses of the last minute that were dropped because of the size limit. */
  droppedCount(): number {
    this.expire();
    return this.#dropped.length;
  }

  get(id: string): RecentResponse | undefined {
    return this.#kept.get(id);
  }

  /** Returns the ids of the recent responses, oldest write first. */
  ids(): readonly string[] {
    this.expire();
    return [...this.#kept.keys()];
  }

  /** Drops entries that are too old or exceed the size limit. */
  expire(): void {
    const oldestMs = this.#time() - KEPT_MS;
    while ((this.#dropped[0] ?? oldestMs) < oldestMs) this.#dropped.shift();
    for (const [id, { atMs }] of this.#kept) {
      if (atMs >= oldestMs && this.#bytes <= MOST_BYTES) return;
      if (atMs >= oldestMs) this.#dropped.push(atMs);
      this.#drop(id);
    }
  }

  #keep(id: string, recent: RecentResponse): void {
    this.#drop(id);
    const bytes = BASE_BYTES + bytesOf(recent.record ?? recent.update);
    this.#kept.set(id, { ...recent, atMs: this.#time(), bytes });
    this.#bytes += bytes;
    this.expire();
  }

  #drop(id: string): void {
    this.#bytes -= this.#kept.get(id)?.bytes ?? 0;
    this.#kept.delete(id);
  }

  /** Returns the time in ms, not counting the pauses. */
  #time(): number {
    return (this.#stoppedAtMs ?? this.#now()) - this.#stoppedMs;
  }
}

function withoutRestart({ restart: _, ...record }: StoredResponse): StoredResponse {
  return record;
}

function bytesOf(response: (ResponseUpdate & Partial<StoredResponse>) | null): number {
  if (response === null) return 0;
  const { body, interrupted, output, events, settings, input, restart } = response;
  const parts = [body, interrupted, output.texts, events?.text, settings, input?.texts, restart?.request];
  return parts.reduce((sum, part) => sum + (part?.byteLength ?? 0), 0);
}
