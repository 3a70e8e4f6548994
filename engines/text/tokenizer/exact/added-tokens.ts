// Exact added tokens: finds the added tokens of a vocabulary in a text as Hugging Face's tokenizers package does:
// leftmost first, and the longest at each position. A token may absorb the white space next to it, or match only as a
// whole word.
import { absent, ByteTrie } from "../byte-trie.ts";
import { isSpace } from "./normalizers.ts";

export interface AddedTokenRules {
  readonly id: number;
  readonly text: string;
  readonly takesBefore: boolean;
  readonly takesAfter: boolean;
  readonly isWord: boolean;
}

export class AddedTokens {
  readonly #tokens: readonly AddedTokenRules[];
  /** Indices into `#tokens`, by the UTF-16 bytes of their texts. */
  readonly #trie = new ByteTrie();
  readonly #firstCharacters: ReadonlySet<string>;

  constructor(tokens: readonly AddedTokenRules[]) {
    this.#tokens = tokens.filter(({ text }) => text !== "");
    for (const [index, { text }] of this.#tokens.entries()) this.#trie.add(Buffer.from(text, "utf16le"), index);
    this.#firstCharacters = new Set(this.#tokens.map(({ text }) => text.charAt(0)));
  }

  /**
   * Splits a text at its added tokens. Calls `onText` and `onToken` for the parts in order. `isFirst`: the part is at
   * the beginning of `text`.
   */
  split(text: string, onText: (part: string, isFirst: boolean) => void, onToken: (id: number) => void): void {
    let last = 0;
    const emit = (end: number) => {
      if (end > last) onText(text.slice(last, end), last === 0);
    };
    if (this.#mayHave(text)) {
      const units = Buffer.from(text, "utf16le");
      for (let at = 0; at < text.length; ) {
        const token = this.#firstCharacters.has(text.charAt(at)) ? this.#longest(units, at, text) : undefined;
        if (token === undefined) {
          at++;
          continue;
        }
        let [start, end] = [at, at + token.text.length];
        at = end;
        if (token.isWord && (isWordCharacter(text, start - 1) || isWordCharacter(text, end))) continue;
        if (token.takesBefore) while (start > last && isSpace(text.charCodeAt(start - 1))) start--;
        if (token.takesAfter) while (end < text.length && isSpace(text.charCodeAt(end))) end++;
        emit(start);
        onToken(token.id);
        at = end;
        last = end;
      }
    }
    emit(text.length);
  }

  #mayHave(text: string): boolean {
    for (const character of this.#firstCharacters) if (text.includes(character)) return true;
    return false;
  }

  #longest(units: Uint8Array, at: number, text: string): AddedTokenRules | undefined {
    let longest: number = absent;
    for (let node = 0, i = 2 * at; i < 2 * text.length; i++) {
      node = this.#trie.child(node, units[i] as number);
      if (node === absent) break;
      const index = this.#trie.value(node);
      if (index !== absent) longest = index;
    }
    return longest === absent ? undefined : this.#tokens[longest];
  }
}

function isWordCharacter(text: string, at: number): boolean {
  return at >= 0 && at < text.length && /[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}]/u.test(text.charAt(at));
}
