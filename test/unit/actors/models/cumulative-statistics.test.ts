import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { engineMetrics } from "../../../../actors/front/engine-metrics.ts";
import type { ModelStatistics } from "../../../../actors/messages.ts";
import { StepLoop } from "../../../../actors/model/step/step-loop.ts";
import { CumulativeStatistics } from "../../../../actors/models/cumulative-statistics.ts";
import { createFakeEngine } from "../../../fixtures/fakes/fake-engine.ts";
import { generousLimits } from "../../../fixtures/scheduling.ts";
import { Frames, job } from "../generation/rig.ts";

/** What a life counts that answers so many requests of five tokens on the chat route. */
function life(requests: number): ModelStatistics {
  const loop = new StepLoop(createFakeEngine({ maxSequences: 2 }), { limits: generousLimits, frameIntervalMs: 0 });
  for (let id = 1; id <= requests; id++) {
    loop.submit(new Frames(), [job(id, { maxNewTokens: 5, series: "/v1/chat/completions", receivedAt: Date.now() })]);
    while (loop.step());
  }
  return loop.snapshot();
}

const metricOf = (statistics: ModelStatistics | null, name: string) =>
  engineMetrics(statistics === null ? [] : [statistics]).find((metric) => metric.name === name)?.samples[0]?.value;

describe("what a model has counted", () => {
  it("goes on from what its earlier lives counted, and never falls", () => {
    const lasting = new CumulativeStatistics();
    lasting.seen(life(2));
    const tokens = [metricOf(lasting.total(), "service_tokens_processed_total")];
    lasting.ended();
    tokens.push(metricOf(lasting.total(), "service_tokens_processed_total"));
    lasting.seen(life(0));
    tokens.push(metricOf(lasting.total(), "service_tokens_processed_total"));
    lasting.seen(life(1));
    tokens.push(metricOf(lasting.total(), "service_tokens_processed_total"));
    const each = metricOf(life(1), "service_tokens_processed_total") as number;
    assert.deepEqual(tokens, [2 * each, 2 * each, 2 * each, 3 * each]);
    assert.equal(lasting.total()?.ended.length, 3);
    const [series] = lasting.total()?.latencies ?? [];
    assert.equal(
      series?.firstToken.counts.reduce((sum, count) => sum + count, 0),
      3,
    );
  });

  it("has nothing now while it has no place", () => {
    const lasting = new CumulativeStatistics();
    assert.equal(lasting.total(), null);
    lasting.seen({ ...life(1), adapters: { loaded: 2, switches: 5 } });
    assert.ok((metricOf(lasting.total(), "service_sequences_capacity") as number) > 0);
    lasting.ended();
    assert.equal(metricOf(lasting.total(), "service_lora_adapters_loaded"), 0);
    assert.equal(metricOf(lasting.total(), "service_lora_adapter_switches_total"), 5);
    assert.equal(metricOf(lasting.total(), "service_sequences_capacity"), 0);
    assert.equal(metricOf(lasting.total(), "service_kv_cache_blocks_total"), 0);
  });
});
