// Operating system threads of this process: their processor time, which does not depend on the load of the machine, and their
// priority. Linux only; on other systems, thread ids are unknown.
import { closeSync, openSync, readlinkSync, readSync } from "node:fs";
import { getPriority, setPriority } from "node:os";

/** Increase of the nice value. If another thread competes for the core, the thread then gets about a quarter of the core. */
const niceness = 5;
const mostNice = 19;

/** Returns the operating system's thread id of the calling thread; null if unknown. */
export function threadNumber(): number | null {
  try {
    return Number(readlinkSync("/proc/thread-self").split("/").at(-1));
  } catch {
    return null;
  }
}

/** Reads the processor time of one thread. The file stays open, because opening it takes longer than reading it. */
export class ThreadClock {
  readonly #path: string;
  readonly #bytes = new Uint8Array(64);
  #file: number | null = null;
  #isClosed: boolean;

  /** `thread`: id of a thread of this process in the operating system; null = unknown, so that its time is unknown too. */
  constructor(thread: number | null) {
    this.#path = `/proc/self/task/${thread}/schedstat`;
    this.#isClosed = thread === null;
  }

  /** Returns the processor time used so far, in ms; null if unknown (the thread has ended, or the kernel always reports 0). */
  read(): number | null {
    if (this.#isClosed) return null;
    try {
      this.#file ??= openSync(this.#path, "r");
      readSync(this.#file, this.#bytes, 0, this.#bytes.length, 0);
      // The first of three numbers: nanoseconds that the thread has run.
      return Number.parseInt(String.fromCharCode(...this.#bytes), 10) / 1e6 || null;
    } catch {
      return null;
    }
  }

  close(): void {
    if (this.#file !== null) closeSync(this.#file);
    this.#file = null;
    this.#isClosed = true;
  }
}

/** Permanently lowers a thread's priority. The thread then gets about a quarter of a core that the calling thread also uses. */
export function lowerPriority(thread: number): void {
  try {
    setPriority(thread, Math.min(getPriority() + niceness, mostNice));
  } catch {
    // The error is ignored: the thread has ended, or the system does not allow the change. Its priority then stays as it is.
  }
}
