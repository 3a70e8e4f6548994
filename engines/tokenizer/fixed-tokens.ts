// Owns finding tokens that stand for one fixed text each (control and user-defined tokens) in a longer text. Longer tokens
// are found first over the whole text, as llama.cpp does, so that both sides cut alike.

/** A stretch of plain text, or a token found in it. */
export type Fragment = string | number;

export class FixedTokens {
  /** Longest first; ids by text. */
  private readonly tokens: readonly (readonly [text: string, id: number])[];
  /** First characters, to rule most texts out with a few searches instead of one a token. */
  private readonly firstCharacters: ReadonlySet<string>;

  constructor(tokens: readonly (readonly [text: string, id: number])[]) {
    const byteLength = (text: string) => Buffer.byteLength(text, "utf8");
    this.tokens = tokens.filter(([text]) => text !== "").sort(([a], [b]) => byteLength(b) - byteLength(a));
    this.firstCharacters = new Set(this.tokens.map(([text]) => text.charAt(0)));
  }

  /** `text` in order, cut at every token. Empty stretches are left out. */
  split(text: string): Fragment[] {
    let fragments: Fragment[] = text === "" ? [] : [text];
    for (const [token, id] of this.presentIn(text)) {
      fragments = fragments.flatMap((fragment) =>
        typeof fragment === "string" && fragment.includes(token) ? cut(fragment, token, id) : [fragment],
      );
    }
    return fragments;
  }

  /** The tokens whose text occurs in `text`, longest first. */
  presentIn(text: string): (readonly [text: string, id: number])[] {
    const present = new Set<string>();
    for (const character of this.firstCharacters) if (text.includes(character)) present.add(character);
    if (present.size === 0) return [];
    return this.tokens.filter(([token]) => present.has(token.charAt(0)) && text.includes(token));
  }
}

function cut(text: string, token: string, id: number): Fragment[] {
  const fragments: Fragment[] = [];
  let start = 0;
  for (let at = text.indexOf(token); at >= 0; at = text.indexOf(token, start)) {
    if (at > start) fragments.push(text.slice(start, at));
    fragments.push(id);
    start = at + token.length;
  }
  if (start < text.length) fragments.push(text.slice(start));
  return fragments;
}
