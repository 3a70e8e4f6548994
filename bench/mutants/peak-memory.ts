// Sampler of the peak resident memory of a process and its descendants. Works on Linux only; on other systems the values are 0.
import { childrenOf, family, residentKiB } from "../proc.ts";

const sampleMs = 25;

export class PeakMemory {
  /**
   * Peak of the total memory of all processes, in MiB. `largestChildMiB`: peak of the largest descendant. A page that several processes
   * share counts once for each of them.
   */
  allMiB = 0;
  largestChildMiB = 0;
  readonly #pid: number;
  readonly #without: number | null;
  readonly #timer: NodeJS.Timeout;

  /** `without`: id of a child process that is not counted. */
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
