// Nearest known word to a mistyped one, for "did you mean" in error messages about unknown names (configuration keys, flags,
// commands, file names). The word is only a suggestion for the user; no code may use it as the name.

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

/**
 * Minimum length in characters of a compared name. Shorter names are not compared, because two different short names may differ
 * by as few letters as a name and its misspelling.
 */
const MIN_NAME_LENGTH = 4;
/** Minimum length in characters of a name that may have two wrong letters. */
const LONG_NAME_LENGTH = 8;

/**
 * Returns the name in `known` that differs from `name` by one or two letters, or only by case, hyphens and underscores; null if
 * there is none.
 */
export function misspelt(name: string, known: Iterable<string>): string | null {
  if (name.length < MIN_NAME_LENGTH || name.length > MAX_MISSPELT_LENGTH) return null;
  const letters = lettersOf(name);
  for (const candidate of known) {
    if (candidate.length < MIN_NAME_LENGTH) continue;
    const allowed = Math.min(name.length, candidate.length) < LONG_NAME_LENGTH ? 1 : 2;
    if (letters === lettersOf(candidate) || editDistance(name, candidate, allowed + 1) <= allowed) return candidate;
  }
  return null;
}

/** Maximum length in characters of a compared name. */
const MAX_MISSPELT_LENGTH = 100;

function lettersOf(name: string): string {
  return name.toLowerCase().replaceAll(/[-_]/g, "");
}

/**
 * Returns the number of insertions, deletions, substitutions and swaps of neighbours that turn a
 * into b. Stops counting at `limit`.
 */
function editDistance(a: string, b: string, limit: number): number {
  if (Math.abs(a.length - b.length) >= limit) return limit;
  let beforePrevious: number[] = [];
  let previous = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let row = 1; row <= a.length; row++) {
    const current = [row];
    for (let column = 1; column <= b.length; column++) {
      const substituted = (previous[column - 1] ?? 0) + (a[row - 1] === b[column - 1] ? 0 : 1);
      const removed = (previous[column] ?? 0) + 1;
      const inserted = (current[column - 1] ?? 0) + 1;
      const isSwap = a[row - 1] === b[column - 2] && a[row - 2] === b[column - 1];
      const swapped = isSwap ? (beforePrevious[column - 2] ?? limit) + 1 : limit;
      current.push(Math.min(substituted, removed, inserted, swapped));
    }
    [beforePrevious, previous] = [previous, current];
  }
  return Math.min(previous[b.length] ?? limit, limit);
}
