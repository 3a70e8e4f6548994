// Event streams: the events of running responses, for readers on other replicas. Each response has one Redis stream, and each
// entry of the stream contains several consecutive events. The id of an entry is the number of its last event plus 1. So a
// reader finds the events after any number, and Redis refuses an entry that is added twice. A published message notifies
// readers of new events.
import { deferred } from "../../deferred.ts";
import type { RedisConnection } from "./redis-connection.ts";
import { appendScript } from "./scripts.ts";

/**
 * Time in ms after its last event at which a stream is removed. RUNNING_MS applies to a running response. ENDED_MS applies to
 * an ended response, whose events are already in the store.
 */
const RUNNING_MS = 24 * 3_600_000;
const ENDED_MS = 10 * 60_000;
/** Maximum number of entries in one read. */
const MOST_ENTRIES = 64;
/** Time in ms for which a subscription is kept after a read, because readers usually read again at once. */
const LINGER_MS = 10_000;

export interface NewEvents {
  readonly id: string;
  /** `first` is the number of the first event; `next` is the number of the last event plus 1. */
  readonly first: number;
  readonly next: number;
  readonly text: Uint8Array;
  /** Number of the first event to keep. Earlier events are removed from the stream. */
  readonly keptFrom: number;
  /** True if these are the last events of the response. */
  readonly isEnd: boolean;
}

/** Events of one entry, as they were added. `text` contains the events from `first` to `next - 1`. */
export type AddedEvents = Omit<NewEvents, "id" | "keptFrom">;

interface Watch {
  readonly wakes: Set<() => void>;
  readonly unsubscribe: () => void;
  timer: NodeJS.Timeout | null;
}

export class EventStreams {
  readonly #connection: RedisConnection;
  readonly #watches = new Map<string, Watch>();

  constructor(connection: RedisConnection) {
    this.#connection = connection;
  }

  /** Adds events to a stream. Does nothing if they have been added already. Throws storage_unavailable. */
  async append({ id, first, next, text, keptFrom, isEnd }: NewEvents): Promise<void> {
    const life = isEnd ? ENDED_MS : RUNNING_MS;
    await this.#connection.run(appendScript, keyOf(id), [next, isEnd ? 1 : 0, first, text, keptFrom + 1, life]);
  }

  /**
   * Returns the events with numbers above `after`. If there are none yet, waits for them for at most `waitMs`, and then returns
   * null. Throws storage_unavailable.
   */
  async read(id: string, after: number, waitMs: number): Promise<readonly AddedEvents[] | null> {
    const now = await this.#read(id, after);
    if (now !== null || waitMs <= 0) return now;
    const watch = this.#watch(id);
    const { promise: woken, resolve: wake } = deferred();
    const timer = setTimeout(wake, waitMs);
    watch.wakes.add(wake);
    try {
      // Events may have been added between the first read and the subscription.
      const meanwhile = await this.#read(id, after);
      if (meanwhile !== null) return meanwhile;
      await woken;
      return await this.#read(id, after);
    } finally {
      clearTimeout(timer);
      watch.wakes.delete(wake);
      this.#leave(id, watch);
    }
  }

  close(): void {
    for (const { unsubscribe, wakes, timer } of this.#watches.values()) {
      if (timer !== null) clearTimeout(timer);
      unsubscribe();
      for (const wake of wakes) wake();
    }
    this.#watches.clear();
  }

  async #read(id: string, after: number): Promise<readonly AddedEvents[] | null> {
    // The id of an entry is NEXT-END. NEXT: number of its last event plus 1. END: 1 for the last entry of the stream, else 0. So
    // this range begins with the entry that contains the event `after` + 1. If the event `after` ended the stream, the range
    // contains the last entry, so that the reader learns of the end.
    const args = ["XRANGE", keyOf(id), `${after + 1}-1`, "+", "COUNT", MOST_ENTRIES];
    type Row = readonly [place: Buffer, fields: readonly Buffer[]];
    const rows = (await this.#connection.command(...args)) as unknown as readonly Row[];
    if (rows.length === 0) return null;
    return rows.map(([place, [, first, , text]]) => {
      const [next, mark] = String(place).split("-");
      return { first: Number(String(first)), next: Number(next), text: text as Buffer, isEnd: mark === "1" };
    });
  }

  #watch(id: string): Watch {
    const known = this.#watches.get(id);
    if (known !== undefined) {
      if (known.timer !== null) clearTimeout(known.timer);
      known.timer = null;
      return known;
    }
    const wakes = new Set<() => void>();
    const unsubscribe = this.#connection.subscribe(keyOf(id), () => {
      for (const wake of wakes) wake();
    });
    const watch = { wakes, unsubscribe, timer: null };
    this.#watches.set(id, watch);
    return watch;
  }

  #leave(id: string, watch: Watch): void {
    if (watch.wakes.size > 0 || this.#watches.get(id) !== watch) return;
    watch.timer = setTimeout(() => {
      watch.unsubscribe();
      this.#watches.delete(id);
    }, LINGER_MS).unref();
  }
}

function keyOf(id: string): string {
  return `{troupe}:events:${id}`;
}
