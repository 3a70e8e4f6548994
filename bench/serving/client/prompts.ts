// Prompts of a load: common English words, one token each in most vocabularies. No two prompts of a run share a prefix, unless a
// shared one is requested, so that prefix caches do not help.
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

/** Words that spell a prompt's number. */
const serialWords = 3;

export interface PromptShape {
  /** Words in all. */
  readonly wordCount: number;
  /** How many of them, at the beginning, are the same for every prompt of one round. */
  readonly sharedCount: number;
  /** Lengths, of prompts and of answers, lie evenly within this share of the mean; 0 = all alike. */
  readonly spread: number;
}

export interface Prompt {
  readonly text: string;
  /** Its answer's length over the mean answer's. */
  readonly answerShare: number;
}

export class PromptSource {
  readonly #seed: number;
  #serial = 0;
  #round = 0;

  constructor(seed: number) {
    this.#seed = seed;
  }

  /** The prompts of one round: unlike all that came before. */
  round(count: number, { wordCount, sharedCount, spread }: PromptShape): Prompt[] {
    const random = randomFrom(this.#seed, this.#round++);
    const shared = this.#words(sharedCount, random);
    const share = () => 1 + spread * (2 * random() - 1);
    return Array.from({ length: count }, () => {
      const own = this.#unique(Math.round(wordCount * share()) - sharedCount);
      return { text: [...shared, ...own].join(" "), answerShare: share() };
    });
  }

  /** The serial number's digits, the lowest first, then words at random. */
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

/** The shape that makes about so many tokens, given what two prompts were counted as. */
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
