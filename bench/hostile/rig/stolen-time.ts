// Meter of stolen time: CPU time that the hypervisor withheld from this virtual machine.
import { readFileSync } from "node:fs";

const pollMs = 100;
const windowMs = 1000;
/** Unit of the times in /proc/stat, in milliseconds. */
const tickMs = 10;
/** Index of the stolen time in the first line of /proc/stat; index 0 is the name `cpu`. */
const stolenField = 8;

export class StolenTime {
  readonly #timer: NodeJS.Timeout;
  readonly #beforeMs = stolenMs();
  /** Stolen time at each poll of the last `windowMs`. */
  readonly #window: number[] = [];
  #worstMs = 0;

  constructor() {
    this.#timer = setInterval(() => this.#poll(), pollMs).unref();
  }

  /** Stops the meter and returns the stolen time as text. */
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

/** Stolen time of all cores since the machine started; 0 if the system does not report it. */
function stolenMs(): number {
  try {
    const [cores = ""] = readFileSync("/proc/stat", "utf8").split("\n", 1);
    return Number(cores.split(/\s+/)[stolenField] ?? 0) * tickMs;
  } catch {
    return 0;
  }
}
