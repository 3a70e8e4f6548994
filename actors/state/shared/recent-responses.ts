// Recent responses: what this replica has stored and deleted in the last minute, without the time in which Redis is lost. Redis may lose
// writes that it has acknowledged: replication is asynchronous, and a restarted server has at most what was on its disk. So
// ResponseStore.restore writes them again when another Redis server has taken the place of the last one. Runs on the state thread.
import type { Entry } from "../../../runtime/store/store.ts";
import type { ResponseUpdate, StoredResponse } from "../../api/stored-responses.ts";
import type { KeptHead } from "../kept-head.ts";

/** Time in ms for which a write is kept: longer than failovers take, and shorter than tombstones of deleted responses are kept. */
const KEPT_MS = 60_000;
/** Maximum bytes of all responses that are kept. The oldest are dropped first. */
const MOST_BYTES = 32 * 2 ** 20;
/** Estimated bytes of a response beside its texts. */
const BASE_BYTES = 512;

export interface RecentResponse {
  /** Whole record; null: it was added longer ago, so that only its update may be lost. */
  readonly record: StoredResponse | null;
  /** Last update; null: none. */
  readonly update: ResponseUpdate | null;
  /** Deletion; null: not deleted. */
  readonly deletion: Deletion | null;
  /** Whether it has output, but has not ended, so that no server may generate it again. */
  readonly hasBegun: boolean;
}

/** `tombstone`: entry that keeps the replica that has generated the response from storing it again; null: none is needed. */
export interface Deletion {
  readonly tombstone: Entry<KeptHead> | null;
}

interface Kept extends RecentResponse {
  readonly atMs: number;
  readonly bytes: number;
}

export class RecentResponses {
  readonly #now: () => number;
  /** By id, the oldest write first. */
  readonly #kept = new Map<string, Kept>();
  #bytes = 0;
  /** Times of the responses of the last minute that were dropped because of their bytes, the oldest first. */
  readonly #dropped: number[] = [];
  /** Milliseconds in which the clock was stopped. */
  #stoppedMs = 0;
  /** Time at which the clock was stopped; null: it runs. */
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

  /** Notes that a response has output, so that no server may generate it again. */
  begun(id: string): void {
    const { record = null, update = null, deletion = null } = this.get(id) ?? {};
    if (deletion === null) {
      this.#keep(id, { record: record && withoutRestart(record), update, deletion, hasBegun: true });
    }
  }

  deleted(id: string, tombstone: Entry<KeptHead> | null): void {
    this.#keep(id, { record: null, update: null, deletion: { tombstone }, hasBegun: false });
  }

  /** Drops the record and the update of a response. Its deletion stays. */
  forget(id: string): void {
    if (this.get(id)?.deletion === null) this.#drop(id);
  }

  /** Stops the clock while Redis is lost, so that nothing becomes too old, or lets it run again. */
  hold(isHeld: boolean): void {
    if (isHeld) this.#stoppedAtMs ??= this.#now();
    else if (this.#stoppedAtMs !== null) {
      this.#stoppedMs += this.#now() - this.#stoppedAtMs;
      this.#stoppedAtMs = null;
    }
  }

  /** Returns the number of responses of the last minute that were dropped because of their bytes. */
  droppedCount(): number {
    this.expire();
    return this.#dropped.length;
  }

  get(id: string): RecentResponse | undefined {
    return this.#kept.get(id);
  }

  /** Ids of the responses, the oldest write first. */
  ids(): readonly string[] {
    this.expire();
    return [...this.#kept.keys()];
  }

  /** Drops what is too old, or too much. */
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

  /** Milliseconds in which the clock ran. */
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
