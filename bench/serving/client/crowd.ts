// Crowd of clients that start at once, each with its own questions in sequence, and the results.
import { performance } from "node:perf_hooks";
import { type Answer, ask, firstTextPercentiles, isWhole, type Question, sumOf } from "./ask.ts";

export interface CrowdResult {
  /** From the first question to the last answer's end. */
  readonly wallMs: number;
  readonly answers: readonly Answer[];
}

/** A list of questions a client. */
export async function askAtOnce(url: URL, clients: readonly (readonly Question[])[]): Promise<CrowdResult> {
  const startMs = performance.now();
  const asked = clients.map(async (questions) => {
    const answers: Answer[] = [];
    for (const question of questions) answers.push(await ask(url, question));
    return answers;
  });
  const answers = (await Promise.all(asked)).flat();
  return { wallMs: performance.now() - startMs, answers };
}

export function tokensPerSecond({ wallMs, answers }: CrowdResult): number {
  return (1000 * sumOf(answers.filter(isWhole), ({ completionTokens }) => completionTokens)) / wallMs;
}

/** Of all prompts' tokens, the share that was there already. */
export function cachedShare({ answers }: CrowdResult): number {
  return sumOf(answers, ({ cachedTokens }) => cachedTokens) / sumOf(answers, ({ promptTokens }) => promptTokens);
}

export function firstTextP50({ answers }: CrowdResult): number {
  return firstTextPercentiles(answers).p50;
}
