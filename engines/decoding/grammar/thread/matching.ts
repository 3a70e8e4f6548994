// Matching: one matcher on its grammar thread. Takes the token of the question and answers which tokens come next.
// Called by worker.ts. Any error of the grammar engine ends the thread.
import type { GrammarMatcher } from "@mlc-ai/web-xgrammar";
import type { MaskedVocabulary } from "./masked-vocabulary.ts";
import { type MatcherBuffer, maxForced, noToken } from "./matcher-buffer.ts";

/** Characters of forced text considered for one answer: encoding a text of a million takes a second. */
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

  /** Takes tokens that have been answered before. */
  replay(tokens: Int32Array): void {
    for (const token of tokens) this.#matcher.acceptToken(token);
  }

  /** Works the answer out without handing it over. */
  async work(): Promise<void> {
    const { token } = this.buffer;
    this.#forcedCount = 0;
    this.#isRefused = token !== noToken && (this.#matcher.isTerminated() || !this.#matcher.acceptToken(token));
    if (this.#isRefused) return;
    if (this.#matcher.isTerminated()) this.buffer.mask.set(this.#vocabulary.ends);
    else this.#forcedCount = await this.#jumpForward();
  }

  /** Hands the answer over, with the time it took. */
  answer(tookMs: number): void {
    if (this.#isRefused) this.buffer.refuse(tookMs);
    else this.buffer.answer(this.#forcedCount, tookMs);
  }

  dispose(): void {
    this.#matcher.dispose();
  }

  /**
   * Takes the text that must come next, token by token, and writes the mask for the tokens after it. Returns the number
   * of tokens. The last token is left to the model if a longer token could replace it and text after it: the model
   * would spell that text differently.
   */
  async #jumpForward(): Promise<number> {
    const text = this.#matcher.findJumpForwardString();
    const part = wholeCharacters(text.slice(0, maxForcedCharacters));
    const tokens = this.#vocabulary.encode(this.#vocabulary.settled(part));
    // The text after a cut may change the token before it.
    const settledCount = text.length > maxForcedCharacters ? tokens.length - 1 : tokens.length;
    const { forced } = this.buffer;
    let count = 0;
    for (; count < Math.min(settledCount, maxForced); count++) {
      const token = tokens[count] as number;
      if (count === tokens.length - 1) {
        await this.#writeMask();
        if (this.#vocabulary.allowsLonger(this.buffer.mask, token)) return count;
      }
      // Refused if the tokenizer spells this text with other tokens.
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
 * The text up to its last character if that has several bytes: the engine cuts where bytes differ, perhaps within a
 * character, and the token of half a character is not reliable.
 */
function wholeCharacters(text: string): string {
  return text.replace(/\P{ASCII}$/u, "");
}
