// Event publisher: publishes the events of a running background response for readers on other replicas. If the shared state is
// unavailable, it retries with the events that are still in the log. The last events are published after the final state is
// stored, so that a client that has read them also finds this state.
import { setTimeout as sleep } from "node:timers/promises";
import type { Replicas } from "../../../actors/api/state/replicas.ts";
import { maxStoredBytes } from "../../../actors/api/stored-responses.ts";
import { utf8Of } from "../../shared/answer/json-pieces.ts";
import { type EventChunk, piecesOf } from "../fold/event-chunks.ts";
import { Bell, type EventLog } from "./event-log.ts";

/** Maximum characters published in one message, unless a single chunk is longer. */
const MOST_CHARACTERS = 256 * 1024;
const RETRY_MS = 500;
/**
 * Maximum number of failed attempts to publish events after the response has ended. If all fail, readers use the stored
 * events.
 */
const LAST_TRIES = 20;

export interface PublishedLog {
  readonly id: string;
  readonly log: EventLog;
  readonly replicas: Pick<Replicas, "publish">;
  /** Resolves when the response has no pending writes. */
  settled(): Promise<void>;
}

/** Publishes the events of a log until its end. Never rejects. */
export async function publishEvents({ id, log, replicas, settled }: PublishedLog): Promise<void> {
  const bell = new Bell();
  log.listen(bell.ring);
  let [next, tries, place] = [0, 0, 0];
  try {
    for (;;) {
      if (log.isBroken) return;
      const isClosed = log.isClosed;
      if (isClosed) await settled();
      next = Math.max(next, log.firstChunk);
      const chunks = batchOf(log.chunksFrom(next));
      const isEnd = isClosed && next + chunks.length === log.endChunk;
      if (chunks.length === 0 && !isEnd) {
        await bell.rung();
        continue;
      }
      const first = chunks[0]?.first ?? place;
      const end = chunks.at(-1)?.next ?? place;
      try {
        const text = await utf8Of(piecesOf(chunks), maxStoredBytes);
        await replicas.publish({ id, first, next: end, text, keptFrom: log.firstEvent, isEnd });
      } catch {
        if (isClosed && ++tries > LAST_TRIES) return;
        await sleep(RETRY_MS);
        continue;
      }
      next += chunks.length;
      place = end;
      if (isEnd) return;
    }
  } finally {
    log.unlisten(bell.ring);
  }
}

function batchOf(chunks: readonly EventChunk[]): readonly EventChunk[] {
  let length = 0;
  const count = chunks.findIndex((chunk, i) => {
    length += chunk.length;
    return i > 0 && length > MOST_CHARACTERS;
  });
  return count < 0 ? chunks : chunks.slice(0, count);
}
