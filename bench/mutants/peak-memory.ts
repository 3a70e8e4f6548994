// Peak memory of a process and its descendants, sampled. Linux only: elsewhere it is 0.
import { childrenOf, family, residentKiB } from "../proc.ts";

const sampleMs = 25;

export class PeakMemory {
  /** Largest sum of all processes, and largest process below the watched one, in MiB. Pages that processes share count for each. */
  allMiB = 0;
  largestChildMiB = 0;
  readonly #pid: number;
  readonly #without: number | null;
  readonly #timer: NodeJS.Timeout;

  /** `without`: child process that is not watched. */
  constructor(pid: number, without: number | null = null) {
    this.#pid = pid;
    this.#without = without;
    this.#timer = setInterval(() => this.#sample(), sampleMs);
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  #sample(): void {
    const children = childrenOf(this.#pid).filter((pid) => pid !== this.#without);
    const descendants = family(children).map((pid) => residentKiB(pid) / 1024);
    this.largestChildMiB = Math.max(this.largestChildMiB, ...descendants);
    const own = residentKiB(this.#pid) / 1024;
    this.allMiB = Math.max(
      this.allMiB,
      descendants.reduce((sum, one) => sum + one, own),
    );
  }
}
