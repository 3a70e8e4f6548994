// Requests of the clients of `bench overload`, and load patterns: all at once, or a number of clients that each send the next
// request after a response. The same seed gives the same requests. No two prompts are equal.
import { performance } from "node:perf_hooks";
import { PromptSource } from "../serving/client/prompts.ts";
import { randomFrom } from "../serving/client/random.ts";
import { type Answer, ask, type Question } from "./client.ts";

export const slots = 32;
/** Minimum and maximum tokens of a response. */
const answerTokens = [32, 64] as const;
/** Words of a prompt. With the chat template this makes about 64 tokens. */
const promptWords = 26;

/** Endless source of questions. */
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

  /** Returns a random integer from 0 to `limit` - 1. */
  below(limit: number): number {
    return Math.floor(this.#random() * limit);
  }
}

/** Sends the questions from `clients` clients. Each client sends the next question when its last one is answered. */
export async function askInTurns(port: number, questions: readonly Question[], clients: number): Promise<Answer[]> {
  const answers: Answer[] = [];
  const next = questions.values();
  const client = async () => {
    for (const question of next) answers.push(await ask(port, question));
  };
  await Promise.all(Array.from({ length: clients }, client));
  return answers;
}

/**
 * Returns the output tokens per second of the complete responses, from the first question to the end of the last of
 * these responses.
 */
export function outputRate(answers: readonly Answer[]): number {
  const done = answers.filter(({ outcome }) => outcome === "done");
  const tokens = done.reduce((sum, { completionTokens }) => sum + completionTokens, 0);
  const startMs = Math.min(...answers.map(({ sentMs }) => sentMs));
  return (1000 * tokens) / (Math.max(...done.map(({ endMs }) => endMs)) - startMs);
}

export function countOf(answers: readonly Answer[], outcome: Answer["outcome"]): number {
  return answers.filter((answer) => answer.outcome === outcome).length;
}

/** Polls until `isSo` is true and returns the elapsed milliseconds; null if the limit is reached first. */
export async function msUntil(isSo: () => boolean | Promise<boolean>, limitMs: number): Promise<number | null> {
  const start = performance.now();
  while (!(await isSo())) {
    if (performance.now() - start > limitMs) return null;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  return performance.now() - start;
}
