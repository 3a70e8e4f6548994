// Responses that are not streamed: collects the complete result of a generation and sends it as one JSON body.
import type { GenerateRequest } from "../../../engines/generation.ts";
import type { Context } from "../../context.ts";
import { type Exchange, jsonHeaders } from "../../exchange.ts";
import { type RunRequest, startRun } from "../agent/start-run.ts";
import { countdown, PROMPTS_AT_ONCE } from "../generate-all.ts";
import { type Answer, collectAnswer } from "./answer.ts";
import { jsonPieces } from "./json-pieces.ts";
import { sendPieces } from "./pieces.ts";

/**
 * Sends the complete result of a generation. `prefixLength`: approximate number of characters that the route adds before the
 * text of each choice. Errors are thrown before anything is sent.
 */
export async function sendAnswer(
  exchange: Exchange,
  context: Context,
  run: RunRequest,
  prefixLength: number,
  bodyOf: (answer: Answer) => object,
): Promise<void> {
  await sendRuns(exchange, context, [run], prefixLength, ([answer]) => bodyOf(answer as Answer));
}

/** Sends the complete results of several generations of one model as one body. The first error ends all generations. */
export async function sendAnswers(
  exchange: Exchange,
  context: Context,
  requests: readonly GenerateRequest[],
  prefixLength: number,
  bodyOf: (answers: readonly Answer[]) => object,
): Promise<void> {
  const runs = requests.map((request) => ({ request, agent: null }));
  await sendRuns(exchange, context, runs, prefixLength, bodyOf);
}

async function sendRuns(
  exchange: Exchange,
  context: Context,
  runs: readonly RunRequest[],
  prefixLength: number,
  bodyOf: (answers: readonly Answer[]) => object,
): Promise<void> {
  const { inference, answerMemory, config } = context;
  const { signal } = exchange.request;
  const stop = new AbortController();
  const lease = answerMemory.lease(runs[0]?.request.client ?? "");
  const prepared = countdown(runs.length, () => exchange.request.releaseBody());
  const answers: Answer[] = [];
  let next = 0;
  const collect = async (at: number): Promise<void> => {
    const run = runs[at] as RunRequest;
    const { request } = run;
    const isAborted = runs.length === 1 ? signal : AbortSignal.any([signal, stop.signal]);
    const events = startRun(context, run, isAborted, prepared(at));
    const texts = () => inference.tokenTexts(request.model);
    answers[at] = await collectAnswer(events, { choiceCount: request.choices, prefixLength, texts, lease });
  };
  const work = async (): Promise<void> => {
    // If another generation fails, this one ends only after its next events, which the lease still counts.
    lease.retain();
    try {
      for (let at = next++; at < runs.length; at = next++) await collect(at);
    } finally {
      lease.release();
    }
  };
  try {
    await Promise.all(Array.from({ length: Math.min(runs.length, PROMPTS_AT_ONCE) }, work));
    const body = bodyOf(answers);
    if (answers.some(({ isLong }) => isLong)) await sendPieces(exchange, jsonHeaders, jsonPieces(body), config);
    else exchange.json(200, body);
  } finally {
    stop.abort();
    lease.release();
  }
}
