// Pace of one matcher: predicts whether the next token mask will be ready in time, and measures the matcher's share of
// its thread's processor time. No side effects and no clock: times are arguments.

/**
 * Share of a thread's time that one matcher may take permanently. Time above this share is added to the matcher's load.
 */
const fairShare = 0.25;
/**
 * Processor time in ms above which computing a token mask counts as slow. Where the processor time is unknown, a shorter
 * time may only be a wait for a processor core.
 */
const quickMs = 20;

export class Pace {
  /** Processor time used above the fair share, in ms. The value decreases as time passes. */
  loadMs = 0;
  /** Sum over all token masks of the processor time above `quickMs`, in ms. */
  slowMs = 0;
  #askedMs = 0;
  #tookMs = 0;
  /** Time in ms for which the step loop waited for the most recent late token mask. */
  #patienceMs = Infinity;
  #isOverdue = false;

  constructor(nowMs: number) {
    this.#askedMs = nowMs;
  }

  /**
   * Whether the next token mask will probably be ready in time. False if a mask is overdue now. Also false if the last
   * mask took longer than the time for which the step loop waited for the most recent late mask.
   */
  get isInTime(): boolean {
    return !this.#isOverdue && this.#tookMs < this.#patienceMs;
  }

  /**
   * Records that the last token mask has been used and the next mask is requested. `tookMs`: time that the last mask
   * took. `workedMs`: processor time of it, which is less on a busy machine.
   */
  ask(tookMs: number, workedMs: number, nowMs: number): void {
    this.loadMs = Math.max(this.loadMs + workedMs - fairShare * (nowMs - this.#askedMs), 0);
    this.slowMs += Math.max(workedMs - quickMs, 0);
    this.#tookMs = tookMs;
    this.#askedMs = nowMs;
    this.#isOverdue = false;
  }

  /** Records that the token mask was needed but was not ready. */
  miss(nowMs: number): void {
    if (!this.#isOverdue) this.#patienceMs = nowMs - this.#askedMs;
    this.#isOverdue = true;
  }
}
