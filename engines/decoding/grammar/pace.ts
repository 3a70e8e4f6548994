// Pace of one matcher: whether its next answer will probably come in time, and how much of its thread it takes. Pure:
// times are arguments.

/** Share of a thread's time that one matcher may take permanently; the excess adds up to its load. */
const fairShare = 0.25;
/** Answers up to this time do not count against the client: the thread may have waited for a core. */
const quickMs = 20;

export class Pace {
  /** Time above the fair share; it decays with time. */
  loadMs = 0;
  /** Sum over all answers of the time beyond `quickMs`. */
  slowMs = 0;
  #askedMs = 0;
  #tookMs = 0;
  /** Waiting time of the last late answer. */
  #patienceMs = Infinity;
  #isOverdue = false;

  constructor(nowMs: number) {
    this.#askedMs = nowMs;
  }

  /** Whether the next answer will probably come in time; false after a late answer that took longer than the wait. */
  get isInTime(): boolean {
    return !this.#isOverdue && this.#tookMs < this.#patienceMs;
  }

  /** The last answer, which took this time, has been used; the next one is asked for. */
  ask(tookMs: number, nowMs: number): void {
    this.loadMs = Math.max(this.loadMs + tookMs - fairShare * (nowMs - this.#askedMs), 0);
    this.slowMs += Math.max(tookMs - quickMs, 0);
    this.#tookMs = tookMs;
    this.#askedMs = nowMs;
    this.#isOverdue = false;
  }

  /** The answer was needed and has not come. */
  miss(nowMs: number): void {
    if (!this.#isOverdue) this.#patienceMs = nowMs - this.#askedMs;
    this.#isOverdue = true;
  }
}
