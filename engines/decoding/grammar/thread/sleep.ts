// Sleep of a grammar thread. In a page, browser/grammar/sleep.ts takes the place of this file.

/** Blocks the thread while `words[at]` is `seen`, until another thread calls Atomics.notify. */
export function sleepWhile(words: Int32Array<SharedArrayBuffer>, at: number, seen: number): void | Promise<void> {
  Atomics.wait(words, at, seen);
}
