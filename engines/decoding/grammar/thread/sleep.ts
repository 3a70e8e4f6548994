// Sleep of a grammar thread. In a web page, browser/grammar/sleep.ts is used instead of this file.

/** Blocks the thread while `words[at]` is `seen`, until another thread calls Atomics.notify. */
export function sleepWhile(words: Int32Array<SharedArrayBuffer>, at: number, seen: number): void | Promise<void> {
  Atomics.wait(words, at, seen);
}
