// Owns finding stop strings in text that arrives in pieces. Text that could be the start of one is held back, as little as
// possible, and a stop string itself is never let out. One instance a sequence; called once a token.

export interface StopResult {
  /** Text that may go out now. */
  readonly text: string;
  /** The stop string that ended the sequence, or null. After one, everything pushed is ignored. */
  readonly stopped: string | null;
}

const nothing: StopResult = { text: "", stopped: null };

export class StopStrings {
  private readonly stops: readonly string[];
  private readonly longest: number;
  private held = "";
  private isStopped = false;

  /** Of stop strings that begin at the same place the longest is taken to have matched. Empty ones are ignored. */
  constructor(stops: readonly string[]) {
    this.stops = stops.filter((stop) => stop !== "").sort((a, b) => b.length - a.length);
    this.longest = this.stops[0]?.length ?? 0;
  }

  push(text: string): StopResult {
    if (this.isStopped) return nothing;
    if (this.longest === 0) return { text, stopped: null };
    const window = this.held + text;
    const heldFrom = this.firstPossibleStart(window);
    const match = this.firstMatch(window);
    // A match counts once nothing before it is held back: an earlier, longer stop string may still complete.
    if (match !== null && match.at <= heldFrom) return this.stop(window.slice(0, match.at), match.stop);
    this.held = window.slice(heldFrom);
    return { text: window.slice(0, heldFrom), stopped: null };
  }

  /** What is left at the end of the sequence. */
  flush(): StopResult {
    if (this.isStopped || this.held === "") return nothing;
    const window = this.held;
    this.held = "";
    const match = this.firstMatch(window);
    return match === null ? { text: window, stopped: null } : this.stop(window.slice(0, match.at), match.stop);
  }

  private stop(text: string, stop: string): StopResult {
    this.isStopped = true;
    this.held = "";
    return { text, stopped: stop };
  }

  private firstMatch(window: string): { at: number; stop: string } | null {
    let first: { at: number; stop: string } | null = null;
    for (const stop of this.stops) {
      const at = window.indexOf(stop);
      if (at >= 0 && (first === null || at < first.at)) first = { at, stop };
    }
    return first;
  }

  /** Where the longest end of `window` starts that is the beginning, but not the whole, of a stop string. */
  private firstPossibleStart(window: string): number {
    for (let start = Math.max(0, window.length - this.longest + 1); start < window.length; start++) {
      const end = window.slice(start);
      if (this.stops.some((stop) => stop.length > end.length && stop.startsWith(end))) return start;
    }
    return window.length;
  }
}
