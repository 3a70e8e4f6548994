// Requests with several prompts: runs up to PROMPTS_AT_ONCE generations at a time and merges their events.
import type { Inference } from "../../actors/api/inference.ts";
import type { GenerateEvent, GenerateRequest, Usage } from "../../engines/generation.ts";
import { addedUsage } from "../../engines/usage.ts";

/** Maximum number of generations of one request that wait or run at the same time. */
export const PROMPTS_AT_ONCE = 8;

type Batches = AsyncIterable<readonly GenerateEvent[]>;
type Batch = readonly GenerateEvent[];

/**
 * Runs several requests, each with n choices, as one generation. Choice c of request r becomes choice r * n + c. The event
 * `done` contains the total usage. The first error ends all generations. `onPrepared`: called when all prompts are prepared.
 */
export function generateAll(
  inference: Pick<Inference, "generate">,
  requests: readonly GenerateRequest[],
  signal: AbortSignal,
  onPrepared: () => void,
): Batches {
  const [only] = requests;
  if (only !== undefined && requests.length === 1) return inference.generate(only, signal, onPrepared);
  return merged(inference, requests, signal, onPrepared);
}

async function* merged(
  inference: Pick<Inference, "generate">,
  requests: readonly GenerateRequest[],
  signal: AbortSignal,
  onPrepared: () => void,
): AsyncGenerator<Batch> {
  const stop = new AbortController();
  const both = AbortSignal.any([signal, stop.signal]);
  const notePrepared = countdown(requests.length, onPrepared);
  const combined = new CombinedEvents(requests);
  const running = new Map<number, Promise<Arrived>>();
  let started = 0;
  try {
    while (started < requests.length || running.size > 0) {
      for (; started < requests.length && running.size < PROMPTS_AT_ONCE; started++) {
        const events = inference.generate(requests[started] as GenerateRequest, both, notePrepared(started));
        running.set(started, arrival(started, events[Symbol.asyncIterator]()));
      }
      const { at, batches, result } = await Promise.race(running.values());
      if (signal.aborted) return;
      if (result.done === true) running.delete(at);
      else {
        running.set(at, arrival(at, batches));
        const events = combined.of(at, result.value);
        if (events.length > 0) yield events;
        if (combined.isFailed) return;
      }
    }
    yield* combined.end();
  } finally {
    stop.abort();
    // A generation whose batch was not consumed waits at its `yield` until return() is called, and keeps its model loaded.
    for (const next of running.values()) void next.then(({ batches }) => batches.return?.()).catch(() => {});
  }
}

/** Merged events of several generations: one `begin`, choices numbered across all generations, and one `done`. */
class CombinedEvents {
  readonly #requests: readonly GenerateRequest[];
  #usage: Usage | null = null;
  #doneCount = 0;
  #isBegun = false;
  #isFailed = false;

  constructor(requests: readonly GenerateRequest[]) {
    this.#requests = requests;
  }

  /** Whether a generation has failed, which ends all generations. */
  get isFailed(): boolean {
    return this.#isFailed;
  }

  /** Converts events of one generation to events of the merged generation. `at`: index of the request. */
  of(at: number, batch: Batch): Batch {
    const first = at * (this.#requests[at]?.choices ?? 1);
    const failure = batch.findIndex(({ type }) => type === "error");
    this.#isFailed = failure >= 0;
    const events = this.#isFailed ? batch.slice(0, failure + 1) : batch;
    return events.flatMap((event) => this.#passed(event, first));
  }

  /** Returns the last batch if all generations are complete, otherwise no batch. */
  end(): Batch[] {
    return this.#usage !== null && this.#doneCount === this.#requests.length
      ? [[{ type: "done", usage: this.#usage }]]
      : [];
  }

  #passed(event: GenerateEvent, firstChoice: number): Batch {
    if (event.type === "done") {
      this.#usage = this.#usage === null ? event.usage : addedUsage(this.#usage, event.usage);
      this.#doneCount++;
      return [];
    }
    if (event.type === "begin") {
      const isFirst = !this.#isBegun;
      this.#isBegun = true;
      return isFirst ? [event] : [];
    }
    return ["choice" in event ? { ...event, choice: firstChoice + event.choice } : event];
  }
}

interface Arrived {
  readonly at: number;
  readonly batches: AsyncIterator<Batch>;
  readonly result: IteratorResult<Batch>;
}

async function arrival(at: number, batches: AsyncIterator<Batch>): Promise<Arrived> {
  return { at, batches, result: await batches.next() };
}

/**
 * Returns a function that takes the number of a part, 0 to `count` - 1, and returns a callback for this part. When the callbacks
 * of all parts have been called, `onAll` is called once.
 */
export function countdown(count: number, onAll: () => void): (part: number) => () => void {
  const called = new Set<number>();
  return (part) => () => {
    if (called.has(part)) return;
    called.add(part);
    if (called.size === count) onAll();
  };
}
