// Word cache of an encoder. Words repeat, so most words of a text cost one look-up. Each encoder that cuts text into
// words has its own cache. Its size is bounded for any text.

const capacity = 16_384;
const longestWord = 32;

export class RememberedWords {
  readonly #encode: (word: string) => readonly number[];
  /** Token lists by word. Cleared when full. */
  readonly #words = new Map<string, readonly number[]>();

  constructor(encode: (word: string) => readonly number[]) {
    this.#encode = encode;
  }

  /** Appends the tokens of `word` to `output`. */
  append(word: string, output: number[]): void {
    let tokens = this.#words.get(word);
    if (tokens === undefined) {
      tokens = this.#encode(word);
      if (word.length <= longestWord) {
        if (this.#words.size === capacity) this.#words.clear();
        this.#words.set(ownCopy(word), tokens);
      }
    }
    for (const token of tokens) output.push(token);
  }
}

/**
 * Returns a copy of the word. A substring keeps its whole string in memory, so caching one new word per text
 * would keep thousands of texts.
 */
function ownCopy(word: string): string {
  return Buffer.from(word, "utf16le").toString("utf16le");
}
