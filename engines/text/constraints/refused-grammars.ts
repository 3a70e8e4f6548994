// Refusals: grammars that were refused lately, by digest. The same grammar is refused at once when it comes again. Bounded, and
// forgotten after some minutes: the machine may only have been busy.
const maxKept = 256;
const keptMs = 10 * 60_000;

interface Refusal {
  readonly error: Error;
  readonly untilMs: number;
}

export class RefusedGrammars {
  /** The oldest first. */
  readonly #kept = new Map<string, Refusal>();

  add(digest: string, error: Error, nowMs: number): void {
    this.#kept.delete(digest);
    this.#kept.set(digest, { error, untilMs: nowMs + keptMs });
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > maxKept && oldest !== undefined) this.#kept.delete(oldest);
  }

  of(digest: string, nowMs: number): Error | null {
    const refusal = this.#kept.get(digest);
    if (refusal === undefined) return null;
    if (nowMs < refusal.untilMs) return refusal.error;
    this.#kept.delete(digest);
    return null;
  }
}
