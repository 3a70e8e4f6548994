// Prompts of a load: common English words, which are one token each in most vocabularies. No two prompts of a run share a
// prefix, so prefix caches do not help, unless a shared prefix is requested.
import { ServerError } from "../../../runtime/errors.ts";
import { randomFrom } from "./random.ts";

const words = (
  "able about above across action active actual after again against age agency ago agree air all allow almost alone along " +
  "already also although always among amount analysis and animal another answer any anyone anything appear apply approach " +
  "area arm army around arrive art article artist ask attack attention author authority available avoid away baby back bad " +
  "bag ball bank bar base beat beautiful because become bed before begin behavior behind believe benefit best better between " +
  "beyond big bill billion bit black blood blue board body book born both box boy break bring brother budget build building " +
  "business but buy call camera campaign can cancer candidate capital car card care career carry case catch cause cell " +
  "center central century certain chair challenge chance change character charge check child choice choose church citizen " +
  "city civil claim class clear close coach cold collection college color come common community company compare computer " +
  "concern condition conference consider consumer contain continue control cost could country couple course court cover " +
  "create crime cultural culture cup current customer cut dark data daughter day dead deal death debate decade decide " +
  "decision deep defense degree democratic describe design despite detail determine develop development die difference " +
  "different difficult dinner direction director discover discuss discussion disease doctor dog door down draw dream drive"
).split(" ");

/** Number of words that encode a prompt's serial number. */
const serialWords = 3;

export interface PromptShape {
  /** Total number of words. */
  readonly wordCount: number;
  /** Number of words at the start that are equal in all prompts of a round. */
  readonly sharedCount: number;
  /**
   * Spread of prompt and response lengths: the lengths are uniformly distributed within this share of the mean. 0: all equal.
   */
  readonly spread: number;
}

export interface Prompt {
  readonly text: string;
  /** Length of the response divided by the mean length. */
  readonly answerShare: number;
}

export class PromptSource {
  readonly #seed: number;
  #serial = 0;
  #round = 0;

  constructor(seed: number) {
    this.#seed = seed;
  }

  /** Returns the prompts of one round. They differ from all earlier ones. */
  round(count: number, { wordCount, sharedCount, spread }: PromptShape): Prompt[] {
    const random = randomFrom(this.#seed, this.#round++);
    const shared = this.#words(sharedCount, random);
    const share = () => 1 + spread * (2 * random() - 1);
    return Array.from({ length: count }, () => {
      const own = this.#unique(Math.round(wordCount * share()) - sharedCount);
      return { text: [...shared, ...own].join(" "), answerShare: share() };
    });
  }

  /** Returns words that encode the serial number, lowest digit first, followed by random words. */
  #unique(count: number): string[] {
    const serial = this.#serial++;
    const digits = Array.from({ length: serialWords }, (_, place) => {
      const digit = Math.floor(serial / words.length ** place);
      return word(digit + this.#seed * (place + 1));
    });
    return [...digits, ...this.#words(count - serialWords, randomFrom(this.#seed, this.#round, serial))];
  }

  #words(count: number, random: () => number): string[] {
    return Array.from({ length: Math.max(0, count) }, () => word(Math.floor(random() * words.length)));
  }
}

/** Returns the shape of prompts with about the requested number of tokens, derived from the token counts of two prompts. */
export function shapeFor(
  { promptTokens, sharedTokens, spread }: Readonly<Record<"promptTokens" | "sharedTokens" | "spread", number>>,
  few: CountedPrompt,
  many: CountedPrompt,
): PromptShape {
  const perWord = (many.tokens - few.tokens) / (many.words - few.words);
  const frame = few.tokens - few.words * perWord;
  const wordCount = Math.round((promptTokens - frame) / perWord);
  const sharedCount = Math.round(sharedTokens / perWord);
  if (wordCount - sharedCount >= serialWords) return { wordCount, sharedCount, spread };
  throw new ServerError(
    "config_invalid",
    `--prompt-tokens ${promptTokens} is too few: the chat template alone makes about ${Math.round(frame)} tokens, ` +
      `--shared-prefix ${sharedTokens}, and what makes a prompt unique ${Math.ceil(serialWords * perWord)} more`,
  );
}

export interface CountedPrompt {
  readonly words: number;
  readonly tokens: number;
}

function word(index: number): string {
  return words[index % words.length] ?? "";
}
