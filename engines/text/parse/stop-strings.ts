// Stop strings: finds stop strings in text that arrives in pieces. Text is held back only while it may be the beginning
// of a stop string. A stop string is never emitted. One instance per sequence; called once per token.

export interface StopResult {
  /** Text that may be emitted now. */
  readonly text: string;
  /** The stop string that ended the sequence; null if none has. Text pushed after it is ignored. */
  readonly stopped: string | null;
}

const nothing: StopResult = { text: "", stopped: null };

export class StopStrings {
  private readonly stops: readonly string[];
  private readonly longest: number;
  private readonly firstCharacters: ReadonlySet<string>;
  private held = "";
  private isStopped = false;

  /**
   * The stop string that is completed first ends the sequence, however the text is divided into pieces. If two stop
   * strings end at the same character, the longer of the two is used. Empty stop strings are ignored.
   */
  constructor(stops: readonly string[]) {
    this.stops = stops.filter((stop) => stop !== "").sort((a, b) => b.length - a.length);
    this.longest = this.stops[0]?.length ?? 0;
    this.firstCharacters = new Set(this.stops.map((stop) => stop.charAt(0)));
  }

  push(text: string): StopResult {
    if (this.isStopped) return nothing;
    if (this.longest === 0) return { text, stopped: null };
    const window = this.held + text;
    const match = this.firstMatch(window);
    if (match === null) {
      const end = this.firstPossibleStart(window);
      this.held = window.slice(end);
      return { text: window.slice(0, end), stopped: null };
    }
    this.isStopped = true;
    this.held = "";
    return { text: window.slice(0, match.end - match.stop.length), stopped: match.stop };
  }

  /** Returns the text that is still held back at the end of the sequence. */
  flush(): StopResult {
    const text = this.held;
    this.held = "";
    return { text, stopped: null };
  }

  private firstMatch(window: string): { stop: string; end: number } | null {
    let first: { stop: string; end: number } | null = null;
    for (const stop of this.stops) {
      const at = window.indexOf(stop);
      if (at >= 0 && (first === null || at + stop.length < first.end)) first = { stop, end: at + stop.length };
    }
    return first;
  }

  /** Returns the start of the longest suffix of `window` that is a prefix of a stop string. */
  private firstPossibleStart(window: string): number {
    for (let start = Math.max(0, window.length - this.longest + 1); start < window.length; start++) {
      if (!this.firstCharacters.has(window.charAt(start))) continue;
      const end = window.slice(start);
      if (this.stops.some((stop) => stop.startsWith(end))) return start;
    }
    return window.length;
  }
}
