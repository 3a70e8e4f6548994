// One matcher on its grammar thread: takes the token asked about and answers which tokens come next. Called by
// worker.ts. Whatever the grammar engine throws ends the thread.
import type { GrammarMatcher } from "@mlc-ai/web-xgrammar";
import type { MaskedVocabulary } from "./masked-vocabulary.ts";
import { type MatcherBuffer, maxForced, noToken } from "./matcher-buffer.ts";

/** Characters of forced text looked at for one answer: encoding a text of a million takes a second. */
const maxForcedCharacters = 32 * maxForced;

export class Matching {
  readonly sheet: MatcherBuffer;
  readonly #matcher: GrammarMatcher;
  readonly #vocabulary: MaskedVocabulary;
  #forcedCount = 0;
  #isRefused = false;

  constructor(matcher: GrammarMatcher, vocabulary: MaskedVocabulary, sheet: MatcherBuffer) {
    this.#matcher = matcher;
    this.#vocabulary = vocabulary;
    this.sheet = sheet;
  }

  /** Takes tokens that have been answered for before. */
  replay(tokens: Int32Array): void {
    for (const token of tokens) this.#matcher.acceptToken(token);
  }

  /** Works the answer out, all but handing it over. */
  async work(): Promise<void> {
    const { token } = this.sheet;
    this.#forcedCount = 0;
    this.#isRefused = token !== noToken && (this.#matcher.isTerminated() || !this.#matcher.acceptToken(token));
    if (this.#isRefused) return;
    if (this.#matcher.isTerminated()) this.sheet.mask.set(this.#vocabulary.ends);
    else this.#forcedCount = await this.#jumpForward();
  }

  /** Hands the answer over that took so long to work out. */
  answer(tookMs: number): void {
    if (this.#isRefused) this.sheet.refuse(tookMs);
    else this.sheet.answer(this.#forcedCount, tookMs);
  }

  dispose(): void {
    this.#matcher.dispose();
  }

  /**
   * Takes the text that must come next, if there is one, token by token, and writes the mask for what follows. Returns how
   * many tokens it took. The last token is left to the model where a longer one could stand in its place, with what follows:
   * it would spell that text otherwise.
   */
  async #jumpForward(): Promise<number> {
    const text = this.#matcher.findJumpForwardString();
    const part = wholeCharacters(text.slice(0, maxForcedCharacters));
    const tokens = this.#vocabulary.encode(this.#vocabulary.settled(part));
    // What follows a cut may change the token before it.
    const settledCount = text.length > maxForcedCharacters ? tokens.length - 1 : tokens.length;
    const { forced } = this.sheet;
    let count = 0;
    for (; count < Math.min(settledCount, maxForced); count++) {
      const token = tokens[count] as number;
      if (count === tokens.length - 1) {
        await this.#writeMask();
        if (this.#vocabulary.allowsLonger(this.sheet.mask, token)) return count;
      }
      // Refused where the tokenizer spells it otherwise than as this text.
      if (!this.#matcher.acceptToken(token)) break;
      forced[count] = token;
    }
    await this.#writeMask();
    return count;
  }

  async #writeMask(): Promise<void> {
    this.#vocabulary.restrict(await this.#matcher.getNextTokenBitmask(), this.sheet.mask);
  }
}

/**
 * The text up to its last character where that is more than a byte: the engine cuts where bytes differ, which may be within
 * a character, and what stands for the half of one is not to be trusted.
 */
function wholeCharacters(text: string): string {
  return text.replace(/\P{ASCII}$/u, "");
}
