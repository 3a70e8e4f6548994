// Character changes (lower case, accent removal) as in llama.cpp's tables. Each character becomes exactly one
// character, and characters added after Unicode 15.0 stay unchanged. Results are cached, because characters repeat.
import { laterCharacters } from "./later-characters.ts";

const capacity = 16_384;
const later = new RegExp(`^[${laterCharacters}]$`, "u");

/** Returns a function that applies `change` to a single character and keeps the first character of the result. */
export function singleCharacters(change: (char: string) => string): (char: string) => string {
  const known = new Map<string, string>();
  return (char) => {
    let changed = known.get(char);
    if (changed === undefined) {
      changed = later.test(char) ? char : String.fromCodePoint(change(char).codePointAt(0) as number);
      if (known.size === capacity) known.clear();
      known.set(char, changed);
    }
    return changed;
  };
}
