// Token index: finds the positions of short runs of tokens in one sequence. It is a hash table that grows with the
// sequence and takes a few probes per token. Used by prompt lookup. It stores positions, not tokens, and never reads
// tokens that have not been indexed.

/** Maximum and minimum length of the indexed runs of tokens. */
export const longestRun = 4;
export const shortestRun = 2;
const runLengths = longestRun - shortestRun + 1;
/** Minimum number of table slots per entry. More free slots mean fewer probes. */
const spaciousness = 2;
const smallestTable = 256;

export class TokenIndex {
  readonly #tokens: Int32Array;
  /** Random seed of the hashes, so that clients cannot choose tokens whose hashes all collide. */
  readonly #seed = Math.trunc(Math.random() * 2 ** 31) | 1;
  #length = 0;
  /**
   * Hash table with one entry for each run of tokens: 4 * end + (run length - shortestRun), where `end` is the end
   * position of the run's latest occurrence. 0 = free.
   */
  #table: Int32Array;

  /** `tokens` may be longer than the part to index. `expected`: number of tokens that will soon be indexed. */
  constructor(tokens: Int32Array, expected: number) {
    this.#tokens = tokens;
    let size = smallestTable;
    while (size < spaciousness * runLengths * expected) size *= 2;
    this.#table = new Int32Array(size);
  }

  /** Number of indexed tokens. */
  get length(): number {
    return this.#length;
  }

  /**
   * Indexes the next token. Looks for the longest run of tokens that ends with this token and occurred earlier. Returns
   * the position after the latest earlier occurrence of this run; 0 if there is none.
   */
  add(): number {
    const end = this.#length + 1;
    if (end * runLengths * spaciousness > this.#table.length) this.#grow();
    this.#length = end;
    let found = 0;
    for (let run = Math.min(longestRun, end); run >= shortestRun; run--) {
      const earlier = this.#replace(run, end);
      if (found === 0) found = earlier;
    }
    return found;
  }

  /** Records `end` as the latest end of a run. Returns the previous end of the same run, or 0. */
  #replace(run: number, end: number): number {
    const table = this.#table;
    const entry = entryOf(run, end);
    let at = this.#home(run, end);
    for (;;) {
      const held = table[at] as number;
      if (held === 0 || (runOf(held) === run && this.#isSameRun(run, endOf(held), end))) {
        table[at] = entry;
        return endOf(held);
      }
      at = (at + 1) & (table.length - 1);
    }
  }

  #isSameRun(run: number, a: number, b: number): boolean {
    const tokens = this.#tokens;
    for (let i = 1; i <= run; i++) if (tokens[a - i] !== tokens[b - i]) return false;
    return true;
  }

  #grow(): void {
    const old = this.#table;
    const table = new Int32Array(old.length * 2);
    this.#table = table;
    for (const entry of old) {
      if (entry === 0) continue;
      let at = this.#home(runOf(entry), endOf(entry));
      while (table[at] !== 0) at = (at + 1) & (table.length - 1);
      table[at] = entry;
    }
  }

  #home(run: number, end: number): number {
    let hash = this.#seed;
    for (let i = end - run; i < end; i++) {
      hash = Math.imul(hash ^ (this.#tokens[i] as number), 0x9e3779b1);
      hash ^= hash >>> 15;
    }
    return hash & (this.#table.length - 1);
  }
}

function entryOf(run: number, end: number): number {
  return end * 4 + (run - shortestRun);
}

function runOf(entry: number): number {
  return (entry & 3) + shortestRun;
}

function endOf(entry: number): number {
  return entry >>> 2;
}
