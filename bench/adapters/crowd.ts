// Load of `bench adapters`: simultaneous clients that use the adapters in rotation. Returns the results of the load.
import { performance } from "node:perf_hooks";
import { type Answer, ask } from "../serving/client/ask.ts";
import { type CrowdResult, firstTextP50, tokensPerSecond } from "../serving/client/crowd.ts";
import { percentiles } from "../serving/client/statistics.ts";

export interface LoadShape {
  readonly promptTokens: number;
  readonly answerTokens: number;
}

export interface CrowdLoad {
  readonly answers: readonly Answer[];
  readonly tokensPerSecond: number;
  readonly firstTextMs: number;
  /** 99th percentile of the pauses between two text chunks of a stream, over all streams. */
  readonly gapP99Ms: number;
}

const request = "Tell a long story. Let these words come up:";

/**
 * Starts one client for each text. Client i uses alias i modulo the number of aliases. Without aliases, requests name no
 * adapter.
 */
export async function crowdLoad(
  url: URL,
  texts: readonly string[],
  aliases: readonly string[],
  { answerTokens }: LoadShape,
): Promise<CrowdLoad> {
  const gapsMs: number[] = [];
  const startMs = performance.now();
  const asked = texts.map((text, client) => {
    const adapter = aliases.length === 0 ? {} : { adapter: aliases[client % aliases.length] };
    const messages = [{ role: "user" as const, content: `${request} ${text}` }];
    return ask(url, { messages, maxTokens: answerTokens, fields: { ignore_eos: true, ...adapter } }, { gapsMs });
  });
  const crowd: CrowdResult = { answers: await Promise.all(asked), wallMs: performance.now() - startMs };
  return {
    answers: crowd.answers,
    tokensPerSecond: tokensPerSecond(crowd),
    firstTextMs: firstTextP50(crowd),
    gapP99Ms: percentiles(gapsMs).p99,
  };
}

export function rates(rounds: readonly CrowdLoad[]): number[] {
  return rounds.map((round) => round.tokensPerSecond);
}

export function answersOf(rounds: readonly CrowdLoad[]): Answer[] {
  return rounds.flatMap(({ answers }) => answers);
}
