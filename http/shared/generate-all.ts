// Several generations of one request: runs the requests a few at a time. Used for a list of prompts.
import type { Inference } from "../../actors/api/inference.ts";
import type { GenerateEvent, GenerateRequest, Usage } from "../../engines/generation.ts";
import { addedUsage } from "./answer/usage.ts";

/** Maximum number of generations of one request that wait or run at the same time. */
export const PROMPTS_AT_ONCE = 8;

type Batches = AsyncIterable<readonly GenerateEvent[]>;
type Batch = readonly GenerateEvent[];

/**
 * Runs the requests, which have the same number of choices, as one generation: choice c of request r is choice r * n + c, and
 * `done` has the usage of all. The first error ends all. `onPrepared` is called when all prompts are prepared.
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
  const running = new Map<number, { readonly batches: AsyncIterator<Batch>; next: Promise<Arrived> }>();
  let usage: Usage | null = null;
  let doneCount = 0;
  let isBegun = false;
  let started = 0;
  const start = (): void => {
    const at = started++;
    const events = inference.generate(requests[at] as GenerateRequest, both, notePrepared(at));
    const batches = events[Symbol.asyncIterator]();
    running.set(at, { batches, next: arrival(at, batches) });
  };
  try {
    while (started < requests.length || running.size > 0) {
      while (started < requests.length && running.size < PROMPTS_AT_ONCE) start();
      const { at, result } = await Promise.race([...running.values()].map(({ next }) => next));
      const generation = running.get(at);
      if (generation === undefined || result.done === true) {
        running.delete(at);
        if (signal.aborted) return;
        continue;
      }
      generation.next = arrival(at, generation.batches);
      const first = at * (requests[at]?.choices ?? 1);
      const events: GenerateEvent[] = [];
      for (const event of result.value) {
        if (event.type === "error") {
          yield [...events, event];
          return;
        }
        if (event.type === "done") {
          usage = usage === null ? event.usage : addedUsage(usage, event.usage);
          doneCount++;
        } else if (event.type === "begin") {
          if (!isBegun) events.push(event);
          isBegun = true;
        } else events.push("choice" in event ? { ...event, choice: first + event.choice } : event);
      }
      if (events.length > 0) yield events;
    }
    if (usage !== null && doneCount === requests.length) yield [{ type: "done", usage }];
  } finally {
    stop.abort();
    for (const { next } of running.values()) next.catch(() => {});
  }
}

interface Arrived {
  readonly at: number;
  readonly result: IteratorResult<Batch>;
}

async function arrival(at: number, batches: AsyncIterator<Batch>): Promise<Arrived> {
  return { at, result: await batches.next() };
}

/** Returns a function that creates the callback of each part. When all callbacks have been called, calls `onAll` once. */
export function countdown(count: number, onAll: () => void): (part: number) => () => void {
  const called = new Set<number>();
  return (part) => () => {
    if (called.has(part)) return;
    called.add(part);
    if (called.size === count) onAll();
  };
}
