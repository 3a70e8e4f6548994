// Processor time that a virtual machine wanted and its host gave to others: what no program on this machine can help.
import { readFileSync } from "node:fs";

const pollMs = 100;
const windowMs = 1000;
/** The unit of /proc/stat. */
const tickMs = 10;
/** Of the first line of /proc/stat, behind its name. */
const stolenField = 8;

export class StolenTime {
  readonly #timer: NodeJS.Timeout;
  readonly #beforeMs = stolenMs();
  /** At the polls of the last `windowMs`. */
  readonly #window: number[] = [];
  #worstMs = 0;

  constructor() {
    this.#timer = setInterval(() => this.#poll(), pollMs).unref();
  }

  /** How much it was, for a person. */
  stop(): string {
    clearInterval(this.#timer);
    const totalMs = stolenMs() - this.#beforeMs;
    return `${(totalMs / 1000).toFixed(1)} s in all, at most ${this.#worstMs} ms in one second`;
  }

  #poll(): void {
    const nowMs = stolenMs();
    this.#window.push(nowMs);
    if (this.#window.length > windowMs / pollMs) this.#window.shift();
    this.#worstMs = Math.max(this.#worstMs, nowMs - (this.#window[0] as number));
  }
}

/** Of all cores since the machine started; 0 where the system does not say. */
function stolenMs(): number {
  try {
    const [cores = ""] = readFileSync("/proc/stat", "utf8").split("\n", 1);
    return Number(cores.split(/\s+/)[stolenField] ?? 0) * tickMs;
  } catch {
    return 0;
  }
}
