// Owns lower case and bare letters as llama.cpp's tables have them: one character for one, never more, and only characters
// of its Unicode version. Encoders that simplify text use it; results are remembered, as each character recurs.
import { laterCharacters } from "./later-characters.ts";

const capacity = 16_384;
const later = new RegExp(`^[${laterCharacters}]$`, "u");

/** A change of single characters that applies `change` to all beyond ASCII that are known, and keeps the first of what it gives. */
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
