// Rotation rig: sequences of several adapters on an engine with one adapter per step. Each step takes a known time.
import assert from "node:assert/strict";
import type { Batch } from "../../../../engines/batch.ts";
import type { SchedulerLimits } from "../../../../engines/decoding/scheduler/limits.ts";
import type { Sequence } from "../../../../engines/decoding/scheduler/sequence.ts";
import { createScheduler, createSequence } from "../../../fixtures/scheduling.ts";

interface Load {
  /** Number of sequences of each adapter, indexed by adapter id. */
  readonly sequences: readonly number[];
  readonly switchMs?: number;
  readonly promptTokenMs?: number;
  /** Number of prompt tokens of each sequence. */
  readonly prompt?: number;
  readonly adaptersPerStep?: number;
  readonly limits?: Partial<SchedulerLimits>;
}

interface Step {
  readonly adapter: number;
  readonly rows: number;
  readonly atMs: number;
  readonly tookMs: number;
}

/** Creates sequences that decode without end. Only their steps advance the clock. */
export function createTurns({
  sequences,
  switchMs = 8,
  promptTokenMs = 0.5,
  prompt = 4,
  adaptersPerStep = 1,
  limits = {},
}: Load) {
  const ids = sequences.map((_, id) => id);
  const count = Math.max(
    sequences.reduce((sum, one) => sum + one, 0),
    40,
  );
  const engine = { maxSequences: count, sequenceTokens: 4000, adaptersPerStep, loadedAdapters: ids.slice(1) };
  const rig = createScheduler({ engine, limits: { maxQueue: 1000, ...limits } });
  const steps: Step[] = [];
  const tokens = new Map<Sequence, number>();
  const longestWait = new Map<Sequence, number>();
  const lastMs = new Map<Sequence, number>();
  let nowMs = 0;
  let before = 0;

  /** Returns the duration of a step: 8 ms for 2 decode rows, 33 ms for 32, plus the time of prompt tokens and of a switch. */
  function cost(batch: Batch): number {
    const adapter = batch.adapter[0]!;
    const promptTokens = rig.scheduler.promptTokensInStep;
    const stepMs = 6.33 + 0.833 * (batch.tokenCount - promptTokens) + promptTokenMs * promptTokens;
    const tookMs = stepMs + (adaptersPerStep === 1 && adapter !== before ? switchMs : 0);
    before = adapter;
    nowMs += tookMs;
    steps.push({ adapter, rows: batch.rowCount, atMs: nowMs - tookMs, tookMs });
    return tookMs;
  }

  function add(adapter: number, options: Parameters<typeof createSequence>[0] = {}): Sequence {
    const sequence = createSequence({
      prompt,
      maxNewTokens: 3000,
      ignoreEos: true,
      seed: adapter,
      adapter,
      ...options,
    });
    rig.scheduler.add(sequence);
    lastMs.set(sequence, nowMs);
    tokens.set(sequence, 0);
    return sequence;
  }

  function runFor(ms: number): void {
    const until = nowMs + ms;
    while (nowMs < until) {
      rig.scheduler.advance(nowMs);
      const ran = rig.step(cost);
      assert.ok(ran, "nothing ran");
      for (const { sequence } of ran.fed) {
        const waited = nowMs - lastMs.get(sequence)!;
        longestWait.set(sequence, Math.max(longestWait.get(sequence) ?? 0, waited));
        lastMs.set(sequence, nowMs);
        tokens.set(sequence, sequence.total - sequence.promptLength);
      }
    }
  }

  const all = ids.flatMap((adapter) => Array.from({ length: sequences[adapter]! }, () => add(adapter)));
  const made = () => [...tokens.values()].reduce((sum, one) => sum + one, 0);
  const switches = () => steps.filter(({ adapter }, i) => i > 0 && adapter !== steps[i - 1]!.adapter).length;
  return { ...rig, all, steps, tokens, longestWait, add, runFor, made, switches, now: () => nowMs };
}
