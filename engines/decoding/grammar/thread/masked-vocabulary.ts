// MaskedVocabulary: the vocabulary as the grammar engine sees it. It defines which tokens are text, which tokens end a
// generation, and how text is tokenised. Each grammar thread creates one from the model's file, and one more for each
// set of control tokens that grammars treat as text (the text is the token's name).
import { readModelMetadata } from "../../../files/gguf/metadata.ts";
import { FixedTokens } from "../../../text/tokenizer/fixed-tokens.ts";
import { createVocabulary, type Vocabulary } from "../../../text/tokenizer/vocabulary.ts";

export class MaskedVocabulary {
  /** The bytes of each token; empty if a grammar must never allow the token as text. */
  readonly pieces: readonly Uint8Array[];
  readonly endTokens: readonly number[];
  /** Mask of the end-of-generation tokens, one bit per token of the vocabulary. */
  readonly ends: Int32Array;
  /** Mask of all tokens that a grammar may ever allow. */
  readonly #usable: Int32Array;
  readonly #vocabulary: Vocabulary;
  readonly #shown: FixedTokens;
  /** Proper prefixes of all texts that are always encoded as one token. */
  readonly #beginnings: ReadonlySet<string>;
  readonly #longestBeginning: number;

  static async read(path: string, vocabSize: number, endOfGeneration: readonly number[]): Promise<MaskedVocabulary> {
    const { tokenizer } = await readModelMetadata(path);
    // The text to encode always follows other text, so no space is added before it.
    const vocabulary = createVocabulary({ ...tokenizer, addSpacePrefix: false, rules: null });
    const size = Math.min(vocabulary.size, vocabSize);
    const ends = endOfGeneration.filter((token) => token < size);
    return new MaskedVocabulary(vocabulary, size, ends, []);
  }

  private constructor(vocabulary: Vocabulary, size: number, ends: readonly number[], shown: readonly number[]) {
    const named = new Map(shown.map((token) => [token, vocabulary.tokenText(token)]));
    this.#vocabulary = vocabulary;
    this.#shown = new FixedTokens([...named].map(([token, name]) => [name, token] as const));
    this.pieces = Array.from({ length: size }, (_, token) => {
      if (!vocabulary.isControl(token)) return vocabulary.piece(token);
      return Buffer.from(named.get(token) ?? "");
    });
    this.endTokens = ends;
    this.ends = new Int32Array(Math.ceil(size / 32));
    for (const token of this.endTokens) set(this.ends, token);
    this.#usable = this.ends.slice();
    this.pieces.forEach((piece, token) => {
      if (piece.length > 0) set(this.#usable, token);
    });
    const fixed = [...named.values(), ...vocabulary.userDefinedTokens.map((token) => vocabulary.tokenText(token))];
    this.#beginnings = new Set(fixed.flatMap(beginningsOf));
    this.#longestBeginning = fixed.reduce((longest, text) => Math.max(longest, text.length - 1), 0);
  }

  /**
   * Returns the same vocabulary, but with these control tokens treated as the text of their names.
   * End-of-generation tokens are not changed.
   */
  showing(tokens: readonly number[]): MaskedVocabulary {
    const size = this.pieces.length;
    const shown = tokens.filter(
      (token) => token < size && this.#vocabulary.isControl(token) && !this.endTokens.includes(token),
    );
    return new MaskedVocabulary(this.#vocabulary, size, this.endTokens, shown);
  }

  /**
   * Encodes text. The names of control tokens that are treated as text, and the texts of user-defined tokens,
   * are encoded as one token each.
   */
  encode(text: string): Int32Array {
    const tokens = this.#shown
      .split(text)
      .flatMap((part) => (typeof part === "number" ? [part] : [...this.#vocabulary.encode(part)]));
    return Int32Array.from(tokens);
  }

  /**
   * Removes the last characters of `text` if they may be the start of a string that is always encoded as one token.
   * Their tokens are uncertain until the following text is known.
   */
  settled(text: string): string {
    for (let length = Math.min(this.#longestBeginning, text.length); length > 0; length--) {
      if (this.#beginnings.has(text.slice(-length))) return text.slice(0, -length);
    }
    return text;
  }

  /** Writes `mask` without the unusable tokens to `target`, which may be a longer array than `mask`. */
  restrict(mask: Int32Array, target: Int32Array): void {
    for (let i = 0; i < this.#usable.length; i++) target[i] = (mask[i] as number) & (this.#usable[i] as number);
  }

  /**
   * Whether `mask` allows a token that is longer in bytes than token `than`. If the text of `than` must come next, all
   * longer allowed tokens begin with this text. Fast if the mask allows few tokens, or nearly all.
   */
  allowsLonger(mask: Int32Array, than: number): boolean {
    const length = this.#length(than);
    for (let i = 0; i < this.#usable.length; i++) {
      for (let bits = mask[i] as number; bits !== 0; bits &= bits - 1) {
        if (this.#length(32 * i + 31 - Math.clz32(bits & -bits)) > length) return true;
      }
    }
    return false;
  }

  #length(token: number): number {
    return (this.pieces[token] as Uint8Array).length;
  }
}

function beginningsOf(text: string): string[] {
  return Array.from({ length: Math.max(0, text.length - 1) }, (_, last) => text.slice(0, last + 1));
}

function set(mask: Int32Array, token: number): void {
  mask[token >> 5] = (mask[token >> 5] as number) | (1 << (token & 31));
}
