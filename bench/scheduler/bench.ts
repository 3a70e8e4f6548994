// Benchmark of the scheduler: CPU time of the scheduling policy per step, without an engine, with a full queue. Also simulates
// the sharing of slots between clients, and speculative decoding.
import { performance } from "node:perf_hooks";
import arg from "arg";
import { table } from "../../cli/bench/report.ts";
import { Batch } from "../../engines/batch.ts";
import type { SchedulerLimits } from "../../engines/decoding/scheduler/limits.ts";
import { Scheduler } from "../../engines/decoding/scheduler/scheduler.ts";
import { Sequence } from "../../engines/decoding/scheduler/sequence.ts";
import { idleCapabilities, idleCapacity, idleKv } from "../idle-kv.ts";
import { report } from "../results.ts";
import { type Percentiles, percentiles } from "../serving/client/statistics.ts";
import { draftsTable } from "./drafts.ts";
import { sharesTable } from "./shares.ts";

const warmupSteps = 300;
const queueLength = 512;
const clientCount = 64;
const sequenceTokens = 8192;
const sampledToken = 7;

const limits: SchedulerLimits = {
  maxBatchTokens: 4096,
  maxPrefillChunkTokens: 512,
  maxDecodeStepsBeforePrefill: 8,
  // All prompts are equal, so with a prefix cache no prefill would be left to schedule.
  prefixCacheEntries: 0,
  maxQueue: queueLength,
  // This limit is never reached, but the scheduler checks every waiting sequence against the limit.
  queueTimeoutMs: 1e9,
  slotShareMs: 2000,
  swapBytes: 0,
  decodeSlowdown: 3,
  maxStepMs: 250,
};

interface Workload {
  readonly name: string;
  readonly promptTokens: number;
  readonly newTokens: number;
}

const workloads: readonly Workload[] = [
  // No sequence ends during the measurement.
  { name: "decodes only", promptTokens: 1, newTokens: sequenceTokens - 1 },
  { name: "prompts come, answers end", promptTokens: 200, newTokens: 64 },
];

export const usage = `npm run bench -- scheduler [FLAGS]: CPU time of the scheduling policy per step, without an engine

  --sequences 32,256,2048
  --steps 2000 --save
`;

export function main(argv: readonly string[]): void {
  const flags = arg({ "--sequences": String, "--steps": Number, "--save": Boolean }, { argv: [...argv] });
  const counts = (flags["--sequences"] ?? "32,256,2048").split(",").map(Number);
  const steps = flags["--steps"] ?? 2000;
  // Warm-up, so that the order of the measurements does not affect the results.
  for (const workload of workloads) measure(workload, counts[0] ?? 1, warmupSteps);
  const rows = workloads.flatMap((workload) =>
    counts.map((count) => {
      const { microseconds, meanRows } = measure(workload, count, steps);
      const shown = [microseconds.p50, microseconds.p90, microseconds.p99].map((value) => value.toFixed(1));
      const perRow = ((microseconds.p50 / meanRows) * 1000).toFixed(0);
      return [workload.name, String(count), meanRows.toFixed(0), ...shown, perRow];
    }),
  );
  report(
    {
      name: "scheduler",
      title: "The scheduling policy's cost a step",
      method:
        `advance, schedule, accept of every token and endStep; ${steps} steps after ${warmupSteps}, ${queueLength} sequences ` +
        `of ${clientCount} clients waiting all the time.`,
      body: `${table(["what", "slots", "rows a step", "us p50", "p90", "p99", "ns a row"], rows)}\n\n${sharesTable()}\n\n${draftsTable()}`,
    },
    flags["--save"] ?? false,
  );
}

function measure(workload: Workload, slots: number, steps: number): { microseconds: Percentiles; meanRows: number } {
  const scheduler = createScheduler(slots);
  const batch = new Batch(slots, limits.maxBatchTokens);
  const sequence = sequences(workload);
  const times: number[] = [];
  let nowMs = 0;
  let rowCount = 0;
  for (let step = -warmupSteps; step < steps; step++) {
    while (scheduler.statistics.running + scheduler.statistics.waiting < slots + queueLength) scheduler.add(sequence());
    const startMs = performance.now();
    scheduler.advance(nowMs);
    scheduler.schedule(batch);
    for (const [row, one] of scheduler.rows.entries()) {
      if (batch.logitsCount[row] === 1) scheduler.accept(one, sampledToken);
    }
    const stepMs = modelMs(batch);
    scheduler.endStep(stepMs);
    const spentMs = performance.now() - startMs;
    nowMs += stepMs;
    if (step < 0) continue;
    times.push(spentMs * 1000);
    rowCount += batch.rowCount;
  }
  scheduler.checkIntegrity();
  return { microseconds: percentiles(times), meanRows: rowCount / steps };
}

/** Returns a scheduler without a model. */
function createScheduler(maxSequences: number): Scheduler<Sequence> {
  const model = {
    capacity: idleCapacity(maxSequences, limits.maxBatchTokens, sequenceTokens),
    capabilities: idleCapabilities,
    kv: idleKv,
    tokens: { endOfGeneration: [] },
  };
  return new Scheduler<Sequence>(model, limits);
}

/** Returns a source of sequences that do not end during the measurement, for each client in turn. */
function sequences({ promptTokens, newTokens }: Workload): () => Sequence {
  const prompt = new Int32Array(promptTokens).fill(sampledToken);
  let count = 0;
  return () =>
    new Sequence({
      client: `client ${count++ % clientCount}`,
      hasQueueLimit: true,
      prompt,
      maxNewTokens: newTokens,
      ignoreEos: true,
      adapter: 0,
      priority: 0,
      isPooled: false,
      wantsPromptLogits: false,
    });
}

/** Returns the duration of a step in milliseconds. Each row costs so little that the scheduler always uses every slot. */
function modelMs({ rowCount, tokenCount }: Batch): number {
  return 5 + 0.02 * rowCount + 0.02 * (tokenCount - rowCount);
}
