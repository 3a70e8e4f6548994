// Crowd: clients that start at the same time, each with a separate list of questions. Also computes the output speed, the time
// to the first text, and the cached share of the prompts.
import { performance } from "node:perf_hooks";
import { type Answer, ask, firstTextPercentiles, isWhole, type Question, sumOf } from "./ask.ts";

export interface CrowdResult {
  /** Time from the first question to the end of the last response. */
  readonly wallMs: number;
  readonly answers: readonly Answer[];
}

/** Starts one client for each list of questions. */
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

/** Returns the share of all prompt tokens that came from the prefix cache. */
export function cachedShare({ answers }: CrowdResult): number {
  return sumOf(answers, ({ cachedTokens }) => cachedTokens) / sumOf(answers, ({ promptTokens }) => promptTokens);
}

export function firstTextP50({ answers }: CrowdResult): number {
  return firstTextPercentiles(answers).p50;
}
