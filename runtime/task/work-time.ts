// Work time: the time that a worker spends on one task, or on loading one shared value. Limits count processor time where the system
// tells it, because on a busy machine a worker gets little of it. A longer limit of wall-clock time ends work that only waits.

/** Ratio of the wall-clock limit to the processor-time limit: of a client's task, and of loading a model for all clients. */
export const clockFactors = { task: 2, load: 6 } as const;
const shortestLookMs = 20;

/** Worker whose time is measured: its processor time so far in ms; null if unknown. */
interface Timed {
  readonly usedMs: number | null;
}

export class WorkTime {
  readonly #worker: Timed;
  readonly #startedMs = performance.now();
  /** Processor time in ms that the worker had used before the work; null if unknown. */
  readonly #usedBeforeMs: number | null;
  #timer: NodeJS.Timeout | undefined;

  /** Create it when the work begins. */
  constructor(worker: Timed) {
    this.#worker = worker;
    this.#usedBeforeMs = worker.usedMs;
  }

  /** Wall-clock time since the work began, in ms. */
  get clockMs(): number {
    return performance.now() - this.#startedMs;
  }

  /** Processor time that the work has used, in ms; its wall-clock time if that is unknown. */
  get usedMs(): number {
    const nowMs = this.#worker.usedMs;
    return nowMs === null || this.#usedBeforeMs === null ? this.clockMs : nowMs - this.#usedBeforeMs;
  }

  /** Calls `then` after this wall-clock time in ms, unless the work has ended by then. Replaces an earlier call and a limit. */
  after(ms: number, then: () => void): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(then, ms).unref();
  }

  /** Calls `onReached` when the work has used `limitMs` of processor time, or `clockFactor` times as much wall-clock time. */
  limit(limitMs: number, clockFactor: number, onReached: () => void): void {
    const leftMs = () => Math.min(limitMs - this.usedMs, clockFactor * limitMs - this.clockMs);
    const look = () => (leftMs() <= 0 ? onReached() : this.after(Math.max(leftMs(), shortestLookMs), look));
    this.after(Math.max(leftMs(), shortestLookMs), look);
  }

  end(): void {
    clearTimeout(this.#timer);
  }
}
