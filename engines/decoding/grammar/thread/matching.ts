// Matching: one matcher on its grammar thread. It reads the accepted token from the matcher's buffer, and writes the
// forced tokens and the mask of allowed tokens into the buffer. Called by worker.ts. Any error of the grammar engine
// ends the thread.
import type { GrammarMatcher } from "@mlc-ai/web-xgrammar";
import type { MaskedVocabulary } from "./masked-vocabulary.ts";
import { type MatcherBuffer, maxForced, noToken } from "./matcher-buffer.ts";

/**
 * Maximum number of characters of forced text that are encoded at once, because encoding a million characters takes a
 * second.
 */
const maxForcedCharacters = 32 * maxForced;

export class Matching {
  readonly buffer: MatcherBuffer;
  readonly #matcher: GrammarMatcher;
  readonly #vocabulary: MaskedVocabulary;
  #forcedCount = 0;
  #isRefused = false;

  constructor(matcher: GrammarMatcher, vocabulary: MaskedVocabulary, buffer: MatcherBuffer) {
    this.#matcher = matcher;
    this.#vocabulary = vocabulary;
    this.buffer = buffer;
  }

  /** Replays the tokens that the matcher has already processed on another thread. */
  replay(tokens: Int32Array): void {
    for (const token of tokens) this.#matcher.acceptToken(token);
  }

  /** Computes the forced tokens and the mask, but does not hand them over yet. */
  async work(): Promise<void> {
    const { token } = this.buffer;
    this.#forcedCount = 0;
    this.#isRefused = token !== noToken && (this.#matcher.isTerminated() || !this.#matcher.acceptToken(token));
    if (this.#isRefused) return;
    if (this.#matcher.isTerminated()) this.buffer.mask.set(this.#vocabulary.ends);
    else this.#forcedCount = await this.#jumpForward();
  }

  /** Hands over the forced tokens and the mask, with the time and the processor time in ms that they took. */
  answer(tookMs: number, workedMs: number): void {
    if (this.#isRefused) this.buffer.refuse(tookMs, workedMs);
    else this.buffer.answer(this.#forcedCount, tookMs, workedMs);
  }

  dispose(): void {
    this.#matcher.dispose();
  }

  /**
   * Accepts the text that must come next, token by token, and writes the mask for the tokens after it. Returns the
   * number of accepted tokens. The last token is not accepted if a longer token could cover the same text and the text
   * after it. The model then chooses the token.
   */
  async #jumpForward(): Promise<number> {
    const text = this.#matcher.findJumpForwardString();
    const part = wholeCharacters(text.slice(0, maxForcedCharacters));
    const tokens = this.#vocabulary.encode(this.#vocabulary.settled(part));
    // If the text was cut, the text after the cut may change the last token before it.
    const settledCount = text.length > maxForcedCharacters ? tokens.length - 1 : tokens.length;
    const { forced } = this.buffer;
    let count = 0;
    for (; count < Math.min(settledCount, maxForced); count++) {
      const token = tokens[count] as number;
      if (count === tokens.length - 1) {
        await this.#writeMask();
        if (this.#vocabulary.allowsLonger(this.buffer.mask, token)) return count;
      }
      // acceptToken() returns false if the tokenizer encodes this text with other tokens than the grammar allows.
      if (!this.#matcher.acceptToken(token)) break;
      forced[count] = token;
    }
    await this.#writeMask();
    return count;
  }

  async #writeMask(): Promise<void> {
    this.#vocabulary.restrict(await this.#matcher.getNextTokenBitmask(), this.buffer.mask);
  }
}

/**
 * Returns the text without its last character if that character is not ASCII. The engine cuts the text at the first
 * byte that is not forced. This byte may be within a character, and the token of an incomplete character is uncertain.
 */
function wholeCharacters(text: string): string {
  return text.replace(/\P{ASCII}$/u, "");
}
