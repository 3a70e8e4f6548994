// Rejected grammars: a cache of the latest rejections, keyed by the grammar's digest. An entry expires after some
// minutes, because a busy machine may have caused the rejection.
import { LruMap } from "../../../runtime/collections.ts";

const maxKept = 256;
const keptMs = 10 * 60_000;

interface Refusal {
  readonly error: Error;
  readonly untilMs: number;
}

export class RefusedGrammars {
  readonly #kept = new LruMap<string, Refusal>(maxKept);

  add(digest: string, error: Error, nowMs: number): void {
    this.#kept.set(digest, { error, untilMs: nowMs + keptMs });
  }

  of(digest: string, nowMs: number): Error | null {
    const refusal = this.#kept.peek(digest);
    return refusal !== undefined && nowMs < refusal.untilMs ? refusal.error : null;
  }
}
