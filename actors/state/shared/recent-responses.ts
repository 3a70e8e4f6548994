// Recent responses: what this replica has stored and deleted in the last minute. Redis may lose writes that it has acknowledged: replication is
// asynchronous, and a restarted server has at most what was on its disk. So ResponseStore.restore writes them again when another Redis
// server has taken the place of the last one. Runs on the state thread.
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

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  added(record: StoredResponse): void {
    this.#keep(record.id, { record, update: null, deletion: null });
  }

  updated(update: ResponseUpdate): void {
    const record = this.get(update.id)?.record ?? null;
    const updated = record === null ? null : { ...withoutRestart(record), ...update };
    this.#keep(update.id, { record: updated, update, deletion: null });
  }

  /** Notes that a response has output, so that no server may generate it again. */
  begun(id: string): void {
    const known = this.get(id);
    if (known?.record) this.#keep(id, { ...known, record: withoutRestart(known.record) });
  }

  deleted(id: string, tombstone: Entry<KeptHead> | null): void {
    this.#keep(id, { record: null, update: null, deletion: { tombstone } });
  }

  forget(id: string): void {
    this.#bytes -= this.#kept.get(id)?.bytes ?? 0;
    this.#kept.delete(id);
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
    for (const [id, { atMs }] of this.#kept) {
      if (atMs >= this.#now() - KEPT_MS && this.#bytes <= MOST_BYTES) return;
      this.forget(id);
    }
  }

  #keep(id: string, recent: RecentResponse): void {
    this.forget(id);
    const bytes = BASE_BYTES + bytesOf(recent.record ?? recent.update);
    this.#kept.set(id, { ...recent, atMs: this.#now(), bytes });
    this.#bytes += bytes;
    this.expire();
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
