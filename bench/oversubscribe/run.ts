// Runner of one or many generations: feeds them to a step loop and keeps their tokens.
import { performance } from "node:perf_hooks";
import {
  jobDefaults,
  rowFinishedLength,
  rowFinishedStop,
  rowInts,
  type SequenceJob,
  type TokenFrame,
} from "../../actors/messages.ts";
import type { StepLoop, Subscriber } from "../../actors/model/step/step-loop.ts";
import { greedySampling } from "../../engines/generation.ts";

/** Maximum duration in ms of a run of all generations. */
const limitMs = 20 * 60_000;
const noticeMs = 5_000;

export interface Run {
  /** Tokens of each prompt's response, in the order of the prompts. */
  readonly answers: readonly (readonly number[])[];
  readonly finishedCount: number;
  readonly failures: readonly string[];
  /** Number of preemptions because the KV cache was full. */
  readonly preemptions: number;
  /**
   * Number of prompt tokens computed. A token is counted again if its KV was dropped without a copy and had to be recomputed.
   */
  readonly promptTokens: number;
  readonly tokensPerSecond: number;
}

/** Runs until all sequences have ended, no sequence makes progress, or the limit is reached. */
export function runAll(loop: StepLoop, prompts: readonly Int32Array[], newTokens: number): Run {
  const collector = new Collector(prompts.length);
  const before = loop.snapshot();
  const startMs = performance.now();
  loop.submit(
    collector,
    prompts.map((prompt, id) => jobOf(id, prompt, newTokens)),
  );
  let noticedMs = startMs;
  while (loop.step()) {
    const nowMs = performance.now();
    if (nowMs - startMs > limitMs) break;
    if (nowMs - noticedMs < noticeMs) continue;
    noticedMs = nowMs;
    const { running, waiting, memoryPreemptions } = loop.snapshot();
    process.stderr.write(`  ${running} running, ${waiting} waiting, ${memoryPreemptions} preemptions so far\n`);
  }
  const seconds = (performance.now() - startMs) / 1000;
  loop.drop(collector);
  const { answers, finishedCount, failures } = collector;
  const after = loop.snapshot();
  return {
    answers,
    finishedCount,
    failures,
    preemptions: after.memoryPreemptions - before.memoryPreemptions,
    promptTokens: after.promptTokens - before.promptTokens,
    tokensPerSecond: answers.reduce((sum, tokens) => sum + tokens.length, 0) / seconds,
  };
}

function jobOf(id: number, prompt: Int32Array, maxNewTokens: number): SequenceJob {
  return {
    ...jobDefaults,
    id,
    prompt,
    maxNewTokens,
    ignoreEos: true,
    adapter: 0,
    sampling: greedySampling,
    choice: 0,
    breakers: new Int32Array(0),
    client: "bench",
  };
}

class Collector implements Subscriber {
  readonly answers: number[][];
  readonly failures: string[] = [];
  finishedCount = 0;

  constructor(count: number) {
    this.answers = Array.from({ length: count }, () => []);
  }

  send({ rows, failed }: TokenFrame): void {
    for (const { error } of failed) this.failures.push(error.message);
    for (let at = 0; at < rows.length; at += rowInts) {
      this.answers[rows[at] as number]?.push(rows[at + 1] as number);
      if ((rows[at + 2] as number) & (rowFinishedStop | rowFinishedLength)) this.finishedCount++;
    }
  }
}
