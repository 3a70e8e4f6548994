// Reference texts: the tokens that the tiny model generates for each prompt. With greedy decoding they are the same in every batch.
import { answered } from "../client.ts";

export const prompts = ["hi", "the sea", "once upon a time there was", "count the stars ".repeat(12), "a".repeat(300)];
export const maxTokens = 96;

export interface Reference {
  /** Tokens of the text in order, each as the bytes of its text. */
  readonly tokens: readonly Buffer[];
}

export class References {
  readonly #texts = new Map<string, Reference>();

  /** Generates the reference texts on a server, for each model and prompt. */
  static async of(url: string, models: readonly string[]): Promise<References> {
    const references = new References();
    for (const model of models) {
      for (const prompt of prompts) {
        const body = { model, messages: [{ role: "user", content: prompt }], ...greedy(maxTokens), logprobs: true };
        const call = await answered(`${url}/v1/chat/completions`, { body }, 120_000);
        const choices = call.json?.choices as ChatChoice[] | undefined;
        if (call.status !== 200 || choices === undefined)
          throw new Error(`no reference text: ${call.status} ${call.text}`);
        const tokens = (choices[0]?.logprobs?.content ?? []).map(({ bytes }) => Buffer.from(bytes));
        references.#texts.set(`${model} ${prompt}`, { tokens });
      }
    }
    return references;
  }

  tokens(model: string, prompt: string): readonly Buffer[] {
    return this.#texts.get(`${model} ${prompt}`)?.tokens ?? [];
  }

  /** Returns the text of the first `count` tokens. */
  text(model: string, prompt: string, count: number): string {
    return Buffer.concat(this.tokens(model, prompt).slice(0, count)).toString();
  }
}

export interface ChatChoice {
  readonly message?: { readonly content: string | null };
  readonly delta?: { readonly content?: string | null };
  readonly finish_reason?: string | null;
  readonly logprobs?: { readonly content: { readonly bytes: number[] }[] } | null;
}

export function greedy(tokens: number): object {
  return { max_tokens: tokens, temperature: 0, ignore_eos: true };
}

/** Returns whether the text is a prefix of the reference. An incomplete character at the end of a cut text is ignored. */
export function isBeginning(text: string, reference: string): boolean {
  return reference.startsWith(text.replace(/\uFFFD+$/, ""));
}
