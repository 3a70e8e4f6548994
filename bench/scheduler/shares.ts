// Simulation of slot shares: a client that waits too long (setting slot_share_secs) gets a slot of the client with the most
// slots. Measures, for several values of the setting, how long other clients wait for a first token while one client holds all
// slots, and how many tokens that one client loses. The scheduler is real; the model only advances a clock.

import { table } from "../../cli/bench/report.ts";
import { Batch } from "../../engines/batch.ts";
import type { SchedulerLimits } from "../../engines/decoding/scheduler/limits.ts";
import { Scheduler } from "../../engines/decoding/scheduler/scheduler.ts";
import { Sequence } from "../../engines/decoding/scheduler/sequence.ts";
import type { KvCache, SavedKv } from "../../engines/engine.ts";
import { idleCapabilities, idleCapacity, idleKv } from "../idle-kv.ts";
import { percentiles } from "../serving/client/statistics.ts";

const simulatedMs = 120_000;
const sampledToken = 7;
const sequenceTokens = 4096;
/**
 * Times in ms of SmolLM2-135M on two cores: a step, each row of a step, a prompt token, and a KV token swapped out and
 * in.
 */
const stepMs = 12;
const rowMs = 2;
const promptTokenMs = 2;
const swapOutMs = 0.05;
const swapInMs = 0.01;

export interface SharesLoad {
  readonly name: string;
  readonly slots: number;
  readonly greedyTokens: number;
  /**
   * Number of clients in addition to the client that holds all slots. Each sends a short request every `everyMs` milliseconds,
   * or only once if `everyMs` is Infinity.
   */
  readonly others: number;
  readonly everyMs: number;
  readonly swapBytes: number;
}

const loads: readonly SharesLoad[] = [
  { name: "one asks every 3 s", slots: 4, greedyTokens: 3000, others: 1, everyMs: 3000, swapBytes: 2 ** 30 },
  { name: "the same, no KV kept", slots: 4, greedyTokens: 3000, others: 1, everyMs: 3000, swapBytes: 0 },
  { name: "31 come at once", slots: 32, greedyTokens: 3000, others: 31, everyMs: Infinity, swapBytes: 2 ** 30 },
  { name: "31, every 10 s", slots: 32, greedyTokens: 3000, others: 31, everyMs: 10_000, swapBytes: 2 ** 30 },
  { name: "answers of 200 tokens", slots: 32, greedyTokens: 200, others: 1, everyMs: 3000, swapBytes: 2 ** 30 },
];

export function sharesTable(): string {
  const rows = loads.flatMap((load) => {
    const alone = simulate({ ...load, others: 0 }, 0).greedyTokens;
    return [0, 1, 2, 3, 5].map((seconds) => {
      const { waits, greedyTokens, changes } = simulate(load, seconds * 1000);
      const { p50, p99 } = percentiles(waits);
      const shown = waits.length === 0 ? ["-", "-"] : [p50, p99].map((ms) => (ms / 1000).toFixed(2));
      const answered = waits.length.toString();
      return [
        load.name,
        String(load.slots),
        String(seconds),
        answered,
        ...shown,
        (greedyTokens / alone).toFixed(3),
        String(changes),
      ];
    });
  });
  return table(
    [
      "beside a client with all slots",
      "slots",
      "share s",
      "first tokens",
      "s p50",
      "p99",
      "its tokens",
      "slots changed",
    ],
    rows,
  );
}

/** Simulates two minutes. `waits`: milliseconds from each request of the other clients to its first token. */
function simulate(load: SharesLoad, slotShareMs: number): { waits: number[]; greedyTokens: number; changes: number } {
  const limits: SchedulerLimits = {
    maxBatchTokens: 4096,
    maxPrefillChunkTokens: 512,
    maxDecodeStepsBeforePrefill: 8,
    prefixCacheEntries: 0,
    maxQueue: 512,
    queueTimeoutMs: 0,
    slotShareMs,
    swapBytes: load.swapBytes,
    decodeSlowdown: 3,
    maxStepMs: 280,
  };
  const kv = new TimedKv();
  const model = {
    capacity: idleCapacity(load.slots, limits.maxBatchTokens, sequenceTokens),
    capabilities: { ...idleCapabilities, saveState: true },
    kv,
    tokens: { endOfGeneration: [] },
  };
  const scheduler = new Scheduler<Sequence>(model, limits);
  const batch = new Batch(load.slots, limits.maxBatchTokens);
  const asked = new Map<Sequence, number>();
  const nextAskMs = Array.from({ length: load.others }, (_, i) => 5000 + (load.everyMs === Infinity ? 0 : 37 * i));
  const waits: number[] = [];
  let greedyTokens = 0;
  for (let nowMs = 0; nowMs < simulatedMs; ) {
    scheduler.advance(nowMs);
    while (scheduler.statistics.waiting < 64) scheduler.add(sequence("greedy", 200, load.greedyTokens));
    for (const [i, atMs] of nextAskMs.entries()) {
      if (nowMs < atMs) continue;
      const one = sequence(`other ${i}`, 40, 8);
      asked.set(one, nowMs);
      scheduler.add(one);
      nextAskMs[i] = atMs + load.everyMs;
    }
    scheduler.schedule(batch);
    const spentMs = stepMs + rowMs * batch.rowCount + promptTokenMs * (batch.tokenCount - batch.rowCount) + kv.takeMs();
    nowMs += spentMs;
    for (const [row, one] of scheduler.rows.entries()) {
      if (batch.logitsCount[row] !== 1) continue;
      const askedMs = asked.get(one);
      if (askedMs === undefined) greedyTokens++;
      else if (one.total === one.promptLength) waits.push(nowMs - askedMs);
      scheduler.accept(one, sampledToken);
    }
    scheduler.endStep(spentMs);
  }
  scheduler.checkIntegrity();
  return { waits, greedyTokens, changes: scheduler.statistics.preemptions.share };
}

function sequence(client: string, promptTokens: number, maxNewTokens: number): Sequence {
  return new Sequence({
    client,
    hasQueueLimit: true,
    prompt: new Int32Array(promptTokens).fill(sampledToken),
    maxNewTokens,
    ignoreEos: true,
    adapter: 0,
    priority: 0,
    isPooled: false,
    wantsPromptLogits: false,
  });
}

/** KV cache without content that counts the time of copies. */
class TimedKv implements KvCache {
  readonly freeBlocks = idleKv.freeBlocks;
  readonly layout = idleKv.layout;
  readonly #tokens = new Map<SavedKv, number>();
  #spentMs = 0;

  /** Returns the simulated copy time since the last call, in milliseconds. */
  takeMs(): number {
    const spentMs = this.#spentMs;
    this.#spentMs = 0;
    return spentMs;
  }

  reserve(): boolean {
    return true;
  }

  release(): void {}
  copyPrefix(): void {}

  save(_slot: number, tokens = 0): SavedKv {
    const saved = {};
    this.#tokens.set(saved, tokens);
    return saved;
  }

  drop(saved: SavedKv): void {
    this.#tokens.delete(saved);
  }

  restore(_slot: number, _saved: SavedKv, tokens: number): void {
    this.#spentMs += tokens * swapInMs;
  }

  export(saved: SavedKv): Uint8Array {
    this.#spentMs += (this.#tokens.get(saved) ?? 0) * swapOutMs;
    return new Uint8Array(1);
  }

  import(_bytes: Uint8Array, tokens: number): SavedKv {
    return this.save(0, tokens);
  }
}
