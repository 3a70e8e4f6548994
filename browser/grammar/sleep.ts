// Sleep of a grammar thread in a page. It sleeps in its event loop, because a web worker gets its messages only there.
import { parentPort } from "../node/worker-threads.ts";

const lookMs = 2;

/** Waits while `words[at]` is `seen` and no message has arrived. */
export async function sleepWhile(words: Int32Array<SharedArrayBuffer>, at: number, seen: number): Promise<void> {
  if (Atomics.load(words, at) !== seen) return;
  await Promise.race([changeOf(words, at, seen), parentPort?.arrival()]);
}

/** Older browsers have no Atomics.waitAsync: there, the thread looks at the word at short intervals. */
async function changeOf(words: Int32Array<SharedArrayBuffer>, at: number, seen: number): Promise<void> {
  if (Atomics.waitAsync === undefined) {
    await new Promise((resolve) => setTimeout(resolve, lookMs));
    return;
  }
  const change = Atomics.waitAsync(words, at, seen);
  if (change.async) await change.value;
}
