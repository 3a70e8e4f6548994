// Owns what a grammar thread knows of the vocabulary: which tokens are text and which end a generation, and how text becomes
// tokens. Made once on each grammar thread from the model's own file.
import { readModelMetadata } from "../gguf/metadata.ts";
import { createVocabulary, type Vocabulary } from "../tokenizer/vocabulary.ts";

export class MaskedVocabulary {
  /** The bytes of each token; none where a grammar must never allow it as text. */
  readonly pieces: readonly Uint8Array[];
  readonly endTokens: readonly number[];
  /** As a mask, of as many words as the vocabulary has. */
  readonly ends: Int32Array;
  /** All tokens that any mask may allow. */
  readonly #usable: Int32Array;
  readonly #vocabulary: Vocabulary;

  static async read(path: string, vocabSize: number, endOfGeneration: readonly number[]): Promise<MaskedVocabulary> {
    const { tokenizer } = await readModelMetadata(path);
    // What is encoded here follows other text, where no space is put in front.
    const vocabulary = createVocabulary({ ...tokenizer, addSpacePrefix: false });
    return new MaskedVocabulary(vocabulary, Math.min(vocabulary.size, vocabSize), endOfGeneration);
  }

  private constructor(vocabulary: Vocabulary, size: number, endOfGeneration: readonly number[]) {
    const nothing = new Uint8Array(0);
    this.#vocabulary = vocabulary;
    this.pieces = Array.from({ length: size }, (_, token) =>
      vocabulary.isControl(token) ? nothing : vocabulary.piece(token),
    );
    this.endTokens = endOfGeneration.filter((token) => token < size);
    this.ends = new Int32Array(Math.ceil(size / 32));
    for (const token of this.endTokens) set(this.ends, token);
    this.#usable = this.ends.slice();
    this.pieces.forEach((piece, token) => {
      if (piece.length > 0) set(this.#usable, token);
    });
  }

  encode(text: string): Int32Array {
    return text === "" ? none : this.#vocabulary.encode(text);
  }

  /** Writes the tokens of `mask` that may be used at all to `target`, which may be longer. */
  restrict(mask: Int32Array, target: Int32Array): void {
    for (let i = 0; i < this.#usable.length; i++) target[i] = (mask[i] as number) & (this.#usable[i] as number);
  }

  /** Whether `mask` allows a token that is longer than this one. Quick where the mask allows few, or many. */
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

const none = new Int32Array(0);

function set(mask: Int32Array, token: number): void {
  mask[token >> 5] = (mask[token >> 5] as number) | (1 << (token & 31));
}
