// Sleep of a grammar thread in a page. It sleeps in its event loop, because a web worker gets its messages only there.
import { parentPort } from "../node/worker-threads.ts";

/** Waits while `words[at]` is `seen` and no message has arrived. */
export async function sleepWhile(words: Int32Array<SharedArrayBuffer>, at: number, seen: number): Promise<void> {
  const change = Atomics.waitAsync(words, at, seen);
  if (change.async) await Promise.race([change.value, parentPort?.arrival()]);
}
