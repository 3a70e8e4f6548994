// Nearest known word to a mistyped one, for "did you mean" in error messages about unknown names (configuration keys, flags,
// commands, file names). It is a suggestion only, so no code may act on it.

/** Returns the word of `known` closest to `word`; null if none is close. */
export function nearest(word: string, known: Iterable<string>): string | null {
  let best: string | null = null;
  let bestDistance = Math.max(2, Math.floor(word.length / 3)) + 1;
  for (const candidate of known) {
    const distance = editDistance(word.toLowerCase(), candidate.toLowerCase(), bestDistance);
    if (distance < bestDistance) [best, bestDistance] = [candidate, distance];
  }
  return best;
}

/** Returns `; did you mean "x"?`, or "" if no known word is close. */
export function suggestion(word: string, known: Iterable<string>): string {
  const found = nearest(word, known);
  return found === null ? "" : `; did you mean "${found}"?`;
}

/** Returns the number of insertions, deletions and substitutions that turn a into b. Stops counting at `limit`. */
function editDistance(a: string, b: string, limit: number): number {
  if (Math.abs(a.length - b.length) >= limit) return limit;
  let previous = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let row = 1; row <= a.length; row++) {
    const current = [row];
    for (let column = 1; column <= b.length; column++) {
      const substituted = (previous[column - 1] ?? 0) + (a[row - 1] === b[column - 1] ? 0 : 1);
      const removed = (previous[column] ?? 0) + 1;
      const inserted = (current[column - 1] ?? 0) + 1;
      current.push(Math.min(substituted, removed, inserted));
    }
    previous = current;
  }
  return Math.min(previous[b.length] ?? limit, limit);
}
