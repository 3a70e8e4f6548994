// Removed words: finds, in the source of a chat template, the words that the template removes from strings or at
// which it splits strings. In the prompt, the texts before and after such a word may be joined. Used by
// chat-template.ts. No side effects.

/** Matches a call or filter that removes or splits text, and its first argument: a string or the name of a variable. */
const removal =
  /\b(?:replace|r?split|removeprefix|removesuffix)\(\s*(?:(["'])((?:\\.|(?!\1)[^\\])*)\1|([A-Za-z_]\w*))/gs;

export function removedWords(source: string): readonly string[] {
  const words = new Set<string>();
  for (const [, , word, variable] of source.matchAll(removal)) {
    if (word !== undefined) words.add(unescaped(word));
    else if (variable !== undefined) for (const value of valuesOf(source, variable)) words.add(value);
  }
  words.delete("");
  return [...words];
}

/** Yields the strings that the template assigns to a variable. */
function* valuesOf(source: string, variable: string): Iterable<string> {
  const setting = new RegExp(`\\bset\\s+${variable}\\s*=\\s*(["'])((?:\\\\.|(?!\\1)[^\\\\])*)\\1`, "gs");
  for (const [, , word] of source.matchAll(setting)) if (word !== undefined) yield unescaped(word);
}

function unescaped(text: string): string {
  const breaks: Readonly<Record<string, string>> = { n: "\n", t: "\t", r: "\r" };
  return text.replace(/\\(.)/gs, (_, character: string) => breaks[character] ?? character);
}
