// Sleep of a grammar thread in a page. It waits asynchronously, because a web worker receives messages only in its event loop.
import { parentPort } from "../node/worker-threads.ts";

const lookMs = 2;

/** Waits until `words[at]` differs from `seen` or a message has arrived. */
export async function sleepWhile(words: Int32Array<SharedArrayBuffer>, at: number, seen: number): Promise<void> {
  if (Atomics.load(words, at) !== seen) return;
  await Promise.race([changeOf(words, at, seen), parentPort?.arrival()]);
}

/**
 * Resolves when the value may have changed. Older browsers have no Atomics.waitAsync, so there the caller polls at short
 * intervals.
 */
async function changeOf(words: Int32Array<SharedArrayBuffer>, at: number, seen: number): Promise<void> {
  if (Atomics.waitAsync === undefined) {
    await new Promise((resolve) => setTimeout(resolve, lookMs));
    return;
  }
  const change = Atomics.waitAsync(words, at, seen);
  if (change.async) await change.value;
}
