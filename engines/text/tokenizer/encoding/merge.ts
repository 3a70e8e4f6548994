// Merge loop of BPE and SentencePiece: merges neighbouring symbols of a text, best pair first, until no pair can be
// merged. The loop takes O(n log n) time for any input and does not recurse, so a hostile text cannot crash it.

/**
 * Returns the rank of merging text[start..middle) with text[middle..end). Lower ranks merge first; Infinity means no
 * merge.
 */
export type PairRank = (text: string, start: number, middle: number, end: number) => number;

const noSymbol = -1;

/**
 * Splits text into one symbol per code point and merges the symbols by `rank`. Among equal ranks, the leftmost pair
 * merges first. Calls `emit` with the bounds of each remaining symbol, in order.
 */
export function mergeSymbols(text: string, rank: PairRank, emit: (start: number, end: number) => void): void {
  const length = text.length;
  // A symbol is identified by the index of its first code unit. next[s] is the index of its right neighbour, and
  // previous[s] the index of its left neighbour.
  const next = new Int32Array(length);
  const previous = new Int32Array(length);
  const queue = new PairQueue();

  const offer = (left: number): void => {
    const middle = next[left] as number;
    if (middle >= length) return;
    const end = next[middle] as number;
    const value = rank(text, left, middle, end);
    if (value !== Number.POSITIVE_INFINITY) queue.push(value, left, end);
  };

  let last = noSymbol;
  for (let start = 0; start < length; ) {
    const end = start + ((text.codePointAt(start) as number) > 0xffff ? 2 : 1);
    next[start] = end;
    previous[start] = last;
    last = start;
    start = end;
  }
  for (let left = 0; left < length; left = next[left] as number) offer(left);

  while (queue.pop()) {
    const { left, end } = queue;
    const middle = next[left] as number;
    // Skip a stale entry: the pair must still be [left, end). next is 0 for a symbol that was merged into its left
    // neighbour, and a symbol that has absorbed its right neighbour has another end.
    if (middle === 0 || middle >= length || next[middle] !== end) continue;
    next[left] = end;
    next[middle] = 0;
    if (end < length) previous[end] = left;
    const before = previous[left] as number;
    if (before !== noSymbol) offer(before);
    offer(left);
  }

  for (let start = 0; start < length; start = next[start] as number) emit(start, next[start] as number);
}

/**
 * Binary heap of candidate pairs in parallel arrays, ordered by lowest rank, then leftmost
 * position. pop() sets `left` and `end`.
 */
class PairQueue {
  left = 0;
  end = 0;
  private readonly ranks: number[] = [];
  private readonly lefts: number[] = [];
  private readonly ends: number[] = [];

  push(rank: number, left: number, end: number): void {
    let hole = this.ranks.length;
    this.ranks.push(rank);
    this.lefts.push(left);
    this.ends.push(end);
    while (hole > 0) {
      const parent = (hole - 1) >> 1;
      if (!this.precedes(rank, left, parent)) break;
      this.move(parent, hole);
      hole = parent;
    }
    this.put(hole, rank, left, end);
  }

  pop(): boolean {
    const size = this.ranks.length - 1;
    if (size < 0) return false;
    this.left = this.lefts[0] as number;
    this.end = this.ends[0] as number;
    const rank = this.ranks.pop() as number;
    const left = this.lefts.pop() as number;
    const end = this.ends.pop() as number;
    if (size === 0) return true;
    let hole = 0;
    for (let child = 1; child < size; child = 2 * hole + 1) {
      if (child + 1 < size && this.precedes(this.ranks[child + 1] as number, this.lefts[child + 1] as number, child))
        child++;
      if (this.precedes(rank, left, child)) break;
      this.move(child, hole);
      hole = child;
    }
    this.put(hole, rank, left, end);
    return true;
  }

  private precedes(rank: number, left: number, at: number): boolean {
    const other = this.ranks[at] as number;
    return rank < other || (rank === other && left < (this.lefts[at] as number));
  }

  private move(from: number, to: number): void {
    this.put(to, this.ranks[from] as number, this.lefts[from] as number, this.ends[from] as number);
  }

  private put(at: number, rank: number, left: number, end: number): void {
    this.ranks[at] = rank;
    this.lefts[at] = left;
    this.ends[at] = end;
  }
}
