// The pace of one matcher: whether its next answer is likely to come in time, and how much of its thread it takes. Pure: it is
// told the time.

/** Share of a thread's time that one matcher may take for long; what is above it adds up to its load. */
const fairShare = 0.25;
/** An answer that takes no longer does not count against its client: the thread may have waited for a core. */
const quickMs = 20;

export class Pace {
  /** Time taken above the fair share, which falls again with time. */
  loadMs = 0;
  /** Sum over all answers of the time beyond `quickMs`. */
  slowMs = 0;
  #askedMs = 0;
  #tookMs = 0;
  /** How long the last late answer was waited for. */
  #patienceMs = Infinity;
  #isOverdue = false;

  constructor(nowMs: number) {
    this.#askedMs = nowMs;
  }

  /** Whether the next answer is likely to be there when it is needed: not so where the last one took too long for that. */
  get isInTime(): boolean {
    return !this.#isOverdue && this.#tookMs < this.#patienceMs;
  }

  /** The last answer, which took so long to work out, has been used; the next one is asked for. */
  ask(tookMs: number, nowMs: number): void {
    this.loadMs = Math.max(this.loadMs + tookMs - fairShare * (nowMs - this.#askedMs), 0);
    this.slowMs += Math.max(tookMs - quickMs, 0);
    this.#tookMs = tookMs;
    this.#askedMs = nowMs;
    this.#isOverdue = false;
  }

  /** The answer was needed and is not there. */
  miss(nowMs: number): void {
    if (!this.#isOverdue) this.#patienceMs = nowMs - this.#askedMs;
    this.#isOverdue = true;
  }
}
