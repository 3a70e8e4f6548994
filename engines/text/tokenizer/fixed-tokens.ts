// Fixed tokens: finds the tokens with a fixed text (control and user-defined tokens) in a longer text. Longer tokens
// are found first in the whole text, as in llama.cpp, so that both tokenizers cut text at the same positions. A single
// pass over the text searches for all tokens, because some vocabularies have thousands of fixed tokens.
import { absent, ByteTrie } from "./byte-trie.ts";

/** A plain text, or the id of a token that was found. */
type Fragment = string | number;

/** Rules for white space: whether the token with the given text absorbs the white space before it or after it. */
export interface Swallowing {
  before(text: string): boolean;
  after(text: string): boolean;
}

/** A token's position in a text, including absorbed white space. */
interface Place {
  readonly start: number;
  readonly end: number;
  readonly id: number;
}

const nowhere: Swallowing = { before: () => false, after: () => false };

export class FixedTokens {
  /** Tokens with their ids, longest text first. */
  readonly #tokens: readonly (readonly [text: string, id: number])[];
  /** Indices into `#tokens`, by the UTF-16 bytes of their texts. */
  readonly #trie = new ByteTrie();
  /**
   * First characters of the tokens. Most texts contain none of these characters, so a few searches suffice for such
   * texts.
   */
  readonly #firstCharacters: ReadonlySet<string>;
  readonly #swallowing: Swallowing;

  constructor(tokens: readonly (readonly [text: string, id: number])[], swallowing = nowhere) {
    const byteLength = (text: string) => Buffer.byteLength(text, "utf8");
    this.#tokens = tokens.filter(([text]) => text !== "").sort(([a], [b]) => byteLength(b) - byteLength(a));
    for (const [index, [text]] of this.#tokens.entries()) this.#trie.add(Buffer.from(text, "utf16le"), index);
    this.#firstCharacters = new Set(this.#tokens.map(([text]) => text.charAt(0)));
    this.#swallowing = swallowing;
  }

  /** Cuts `text` at every fixed token and returns the fragments in order. Empty fragments are omitted. */
  split(text: string): Fragment[] {
    const fragments: Fragment[] = [];
    let last = 0;
    for (const { start, end, id } of this.#places(text)) {
      if (start > last) fragments.push(text.slice(last, start));
      fragments.push(id);
      last = end;
    }
    if (last < text.length) fragments.push(text.slice(last));
    return fragments;
  }

  /** Returns the fixed tokens whose text occurs in `text`, longest first. */
  presentIn(text: string): (readonly [text: string, id: number])[] {
    const present = new Set<number>();
    if (this.#mayHave(text)) {
      const units = Buffer.from(text, "utf16le");
      for (let at = 0; at < text.length; at++) this.#longest(units, at, text.length, (index) => present.add(index));
    }
    return this.#tokens.filter((_, index) => present.has(index));
  }

  /** Returns the positions of the tokens in text order, without overlaps. */
  #places(text: string): Place[] {
    if (!this.#mayHave(text)) return [];
    const units = Buffer.from(text, "utf16le");
    // Candidate start positions, by token index. Initially, a position is in the list of the longest token that matches
    // there. If this token overlaps a token that was already found, the position moves to the list of the longest
    // matching token without an overlap.
    const waiting: (number[] | undefined)[] = new Array(this.#tokens.length);
    const offer = (at: number, limit: number): void => {
      const index = this.#longest(units, at, limit);
      if (index === absent) return;
      const starts = waiting[index];
      if (starts === undefined) waiting[index] = [at];
      else starts.push(at);
    };
    for (let at = 0; at < text.length; at++) offer(at, text.length);

    const taken = new Uint8Array(text.length);
    const places: Place[] = [];
    for (const [index, [name, id]] of this.#tokens.entries()) {
      for (const at of waiting[index]?.sort((a, b) => a - b) ?? []) {
        const free = freeFrom(taken, at, at + name.length);
        if (free < name.length) {
          if (free > 0) offer(at, at + free);
          continue;
        }
        const place = this.#swallow(text, taken, { start: at, end: at + name.length, id }, name);
        taken.fill(1, place.start, place.end);
        places.push(place);
      }
    }
    return places.sort((a, b) => a.start - b.start);
  }

  #mayHave(text: string): boolean {
    for (const character of this.#firstCharacters) if (text.includes(character)) return true;
    return false;
  }

  /**
   * Returns the longest token that starts at `at` and ends at or before `limit`. Calls `met` with each token that
   * matches.
   */
  #longest(units: Uint8Array, at: number, limit: number, met?: (index: number) => void): number {
    let longest: number = absent;
    for (let node = 0, i = 2 * at; i < 2 * limit; i++) {
      node = this.#trie.child(node, units[i] as number);
      if (node === absent) break;
      const index = this.#trie.value(node);
      if (index === absent) continue;
      longest = index;
      met?.(index);
    }
    return longest;
  }

  #swallow(text: string, taken: Uint8Array, { start, end, id }: Place, name: string): Place {
    if (this.#swallowing.before(name)) while (start > 0 && !taken[start - 1] && isSpace(text, start - 1)) start--;
    if (this.#swallowing.after(name)) while (end < text.length && !taken[end] && isSpace(text, end)) end++;
    return { start, end, id };
  }
}

/** Returns the number of consecutive positions from `start`, at most up to `end`, that no found token covers. */
function freeFrom(taken: Uint8Array, start: number, end: number): number {
  let at = start;
  while (at < end && taken[at] === 0) at++;
  return at - start;
}

function isSpace(text: string, at: number): boolean {
  const unit = text.charCodeAt(at);
  return unit === 0x20 || (unit >= 0x09 && unit <= 0x0d);
}
