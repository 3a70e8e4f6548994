// Prompts of a given number of tokens, without shared prefixes. The tokens per word are measured on a server once.
import { ServerError } from "../../../runtime/errors.ts";
import { ask } from "./ask.ts";
import { PromptSource } from "./prompts.ts";

/** Lengths in words of the two prompts from which the tokens per word are derived. */
const countedLengths = [8, 136] as const;

export class SizedPrompts {
  readonly #source: PromptSource;
  readonly #tokensPerWord: number;

  private constructor(source: PromptSource, tokensPerWord: number) {
    this.#source = source;
    this.#tokensPerWord = tokensPerWord;
  }

  static async create(url: URL, seed = 1): Promise<SizedPrompts> {
    const source = new PromptSource(seed);
    const [fewWords, manyWords] = countedLengths;
    const few = await countTokens(url, textOf(source, fewWords));
    const many = await countTokens(url, textOf(source, manyWords));
    return new SizedPrompts(source, (many - few) / (manyWords - fewWords));
  }

  /** Returns a text of about `tokens` tokens. The tokens of the chat template are not counted. */
  take(tokens: number): string {
    return textOf(this.#source, Math.round(tokens / this.#tokensPerWord));
  }

  many(count: number, tokens: number): string[] {
    return Array.from({ length: count }, () => this.take(tokens));
  }
}

function textOf(source: PromptSource, wordCount: number): string {
  return source.round(1, { wordCount, sharedCount: 0, spread: 0 })[0]?.text ?? "";
}

async function countTokens(url: URL, content: string): Promise<number> {
  const { promptTokens, error } = await ask(url, { messages: [{ role: "user", content }], maxTokens: 1 });
  if (error === null) return promptTokens;
  throw new ServerError("config_invalid", `${url.origin} did not answer a chat: ${error}`);
}
