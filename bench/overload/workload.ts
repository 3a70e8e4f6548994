// Requests of the clients of `bench overload`, and shapes of load: all at once, or a number of clients that each ask again after
// an answer. The same seed gives the same requests; no two prompts are equal.
import { performance } from "node:perf_hooks";
import { PromptSource } from "../serving/client/prompts.ts";
import { randomFrom } from "../serving/client/random.ts";
import { type Answer, ask, type Question } from "./client.ts";

export const slots = 32;
/** Tokens of an answer: from, to. */
const answerTokens = [32, 64] as const;
/** With what the chat template adds this makes about 64 tokens. */
const promptWords = 26;

/** An endless supply of questions. */
export class Workload {
  readonly #prompts: PromptSource;
  readonly #random: () => number;

  constructor(seed: number) {
    this.#prompts = new PromptSource(seed);
    this.#random = randomFrom(seed);
  }

  questions(count: number): Question[] {
    const [fewest, most] = answerTokens;
    const prompts = this.#prompts.round(count, { wordCount: promptWords, sharedCount: 0, spread: 0 });
    return prompts.map(({ text: prompt }) => ({ prompt, maxTokens: fewest + this.below(most - fewest + 1) }));
  }

  /** A whole number from 0 to `limit` - 1. */
  below(limit: number): number {
    return Math.floor(this.#random() * limit);
  }
}

/** `clients` clients share the questions; each asks the next one when it is answered. */
export async function askInTurns(port: number, questions: readonly Question[], clients: number): Promise<Answer[]> {
  const answers: Answer[] = [];
  const next = questions.values();
  const client = async () => {
    for (const question of next) answers.push(await ask(port, question));
  };
  await Promise.all(Array.from({ length: clients }, client));
  return answers;
}

/** Output tokens a second of the answers that came in full, from the first question to the last token. */
export function outputRate(answers: readonly Answer[]): number {
  const done = answers.filter(({ outcome }) => outcome === "done");
  const tokens = done.reduce((sum, { completionTokens }) => sum + completionTokens, 0);
  const startMs = Math.min(...answers.map(({ sentMs }) => sentMs));
  return (1000 * tokens) / (Math.max(...done.map(({ endMs }) => endMs)) - startMs);
}

export function countOf(answers: readonly Answer[], outcome: Answer["outcome"]): number {
  return answers.filter((answer) => answer.outcome === outcome).length;
}

/** Milliseconds until something is so, looked at now and then; null if it is not within the limit. */
export async function msUntil(isSo: () => boolean | Promise<boolean>, limitMs: number): Promise<number | null> {
  const start = performance.now();
  while (!(await isSo())) {
    if (performance.now() - start > limitMs) return null;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  return performance.now() - start;
}
