import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { engineMetrics } from "../../../../actors/front/metrics/engine-metrics.ts";
import type { ModelStatistics } from "../../../../actors/messages.ts";
import { StepLoop } from "../../../../actors/model/step/step-loop.ts";
import { CumulativeStatistics } from "../../../../actors/models/cumulative-statistics.ts";
import { createFakeEngine } from "../../../fixtures/fakes/fake-engine.ts";
import { generousLimits } from "../../../fixtures/scheduling.ts";
import { Frames, job } from "../generation/rig.ts";

/** Returns the statistics of a place (worker thread or process) after `requests` requests of five tokens on the chat route. */
function place(requests: number): ModelStatistics {
  const loop = new StepLoop(createFakeEngine({ maxSequences: 2 }), { limits: generousLimits, frameIntervalMs: 0 });
  for (let id = 1; id <= requests; id++) {
    loop.submit(new Frames(), [job(id, { maxNewTokens: 5, series: "/v1/chat/completions", receivedAt: Date.now() })]);
    while (loop.step());
  }
  return loop.snapshot();
}

const metricOf = (statistics: ModelStatistics | null, name: string) =>
  engineMetrics(statistics === null ? [] : [statistics]).find((metric) => metric.name === name)?.samples[0]?.value;

describe("the statistics of a model", () => {
  it("continue the totals of earlier places, and never fall", () => {
    const statistics = new CumulativeStatistics();
    statistics.seen(place(2));
    const tokens = [metricOf(statistics.total(), "service_tokens_processed_total")];
    statistics.ended();
    tokens.push(metricOf(statistics.total(), "service_tokens_processed_total"));
    statistics.seen(place(0));
    tokens.push(metricOf(statistics.total(), "service_tokens_processed_total"));
    statistics.seen(place(1));
    tokens.push(metricOf(statistics.total(), "service_tokens_processed_total"));
    const each = metricOf(place(1), "service_tokens_processed_total") as number;
    assert.deepEqual(tokens, [2 * each, 2 * each, 2 * each, 3 * each]);
    assert.equal(statistics.total()?.ended.length, 3);
    const [series] = statistics.total()?.latencies ?? [];
    assert.equal(
      series?.firstToken.counts.reduce((sum, count) => sum + count, 0),
      3,
    );
  });

  it("have gauges of 0 while the model has no place", () => {
    const statistics = new CumulativeStatistics();
    assert.equal(statistics.total(), null);
    statistics.seen({ ...place(1), preempted: 3, adapters: { loaded: 2, switches: 5 } });
    assert.ok((metricOf(statistics.total(), "service_sequences_capacity") as number) > 0);
    statistics.ended();
    assert.equal(metricOf(statistics.total(), "service_lora_adapters_loaded"), 0);
    assert.equal(metricOf(statistics.total(), "service_lora_adapter_switches_total"), 5);
    assert.equal(metricOf(statistics.total(), "service_sequences_capacity"), 0);
    assert.equal(metricOf(statistics.total(), "service_sequences_waiting"), 0);
    assert.equal(metricOf(statistics.total(), "service_kv_cache_blocks_total"), 0);
  });
});
