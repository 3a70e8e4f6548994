// Delay of other streams by schema compilation. One client requests structured responses one after another: first all with the
// same schema, then each with a new schema.
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { exactly, findingsTable, told } from "../overload/finding.ts";
import { type Answer, ask, firstTextPercentiles } from "../serving/client/ask.ts";
import type { SizedPrompts } from "../serving/client/sized-prompts.ts";
import { percentiles } from "../serving/client/statistics.ts";
import { answered } from "../serving/show.ts";
import type { Side } from "../serving/sides.ts";
import { DecodeStreams } from "../smooth/streams.ts";
import { newSchema, schemaFormat } from "./schemas.ts";

const streamCount = 8;
const streamTokens = 256;
const settleMs = 2_000;
const promptTokens = 32;
const answerTokens = 16;

interface Phase {
  readonly gapsMs: readonly number[];
  readonly answers: readonly Answer[];
}

export async function newSchemas({ label, url }: Side, prompts: SizedPrompts, seconds: number): Promise<string> {
  const streams = new DecodeStreams({ url, count: streamCount, maxTokens: streamTokens, prompts });
  let serial = 0;
  const phase = async (name: string, schema: () => object): Promise<Phase> => {
    process.stderr.write(`structured, ${label}: ${name} for ${seconds} s\n`);
    streams.takeGaps();
    const answers = await askFor(seconds, url, prompts, schema);
    return { gapsMs: streams.takeGaps(), answers };
  };
  await sleep(settleMs);
  const known = newSchema(serial++);
  await askFor(0.001, url, prompts, () => known);
  const same = await phase("one schema", () => known);
  const fresh = await phase("new schemas", () => newSchema(serial++));
  const failures = await streams.stop();
  const answers = [...same.answers, ...fresh.answers];
  const [sameMs, freshMs] = [percentiles(same.gapsMs), percentiles(fresh.gapsMs)];
  return findingsTable(`${label}, beside ${streamCount} streams`, [
    answered("answered", answers),
    exactly("streams that failed", failures.length, 0),
    told("answers with one schema / new ones", `${same.answers.length} / ${fresh.answers.length}`),
    told("first token, one schema / new ones", `${firstMs(same)} / ${firstMs(fresh)} ms`),
    told("streams' pauses p99, one schema / new ones", `${sameMs.p99.toFixed(0)} / ${freshMs.p99.toFixed(0)} ms`),
    told("longest pause", `${longest(same)} / ${longest(fresh)} ms`),
    told("p99 with new schemas over one schema", (freshMs.p99 / sameMs.p99).toFixed(3)),
  ]);
}

/** Requests structured responses for `seconds`, at least one. */
async function askFor(seconds: number, url: URL, prompts: SizedPrompts, schema: () => object): Promise<Answer[]> {
  const untilMs = performance.now() + seconds * 1000;
  const answers: Answer[] = [];
  while (performance.now() < untilMs) {
    const messages = [{ role: "user", content: prompts.take(promptTokens) }] as const;
    const fields = { response_format: schemaFormat(schema()) };
    answers.push(await ask(url, { messages, maxTokens: answerTokens, fields }));
  }
  return answers;
}

function firstMs({ answers }: Phase): string {
  return firstTextPercentiles(answers).p50.toFixed(0);
}

function longest({ gapsMs }: Phase): string {
  return gapsMs.reduce((most, gap) => Math.max(most, gap), 0).toFixed(0);
}
