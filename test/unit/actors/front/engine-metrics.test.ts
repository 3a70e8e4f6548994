import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { engineMetrics, latencyMetrics } from "../../../../actors/front/metrics/engine-metrics.ts";
import { StepLoop } from "../../../../actors/model/step/step-loop.ts";
import { createFakeEngine } from "../../../fixtures/fakes/fake-engine.ts";
import { generousLimits } from "../../../fixtures/scheduling.ts";
import { Frames, job } from "../generation/rig.ts";

describe("the engine's metrics", () => {
  it("have the contract's names, and count what happened", () => {
    const engine = createFakeEngine({ maxSequences: 2, sequenceTokens: 128, kvBlocks: 32 });
    const limits = { ...generousLimits, prefixCacheEntries: 4 };
    const loop = new StepLoop(engine, { limits, frameIntervalMs: 0 });
    const frames = new Frames();
    const prompt = Int32Array.from({ length: 64 }, (_, i) => i);
    for (const id of [1, 2]) {
      loop.submit(frames, [job(id, { prompt, maxNewTokens: 5, ignoreEos: true })]);
      while (loop.step());
    }
    loop.submit(frames, [job(3, { prompt, maxNewTokens: 5, ignoreEos: true })]);
    loop.cancel(frames, [3]);
    const values = new Map<string, number>();
    for (const { name, samples } of engineMetrics([loop.snapshot(), loop.snapshot()])) {
      for (const { labels, value } of samples) values.set(`${name}${Object.values(labels)}`, value);
    }
    for (const seconds of ["service_step_seconds_total", "service_forward_pass_seconds_total"]) {
      assert.ok((values.get(seconds) ?? -1) >= 0);
      values.delete(seconds);
    }
    const expected = {
      // Two runs, each with 64 tokens of the first prompt, one token of the second, and five output tokens per prompt.
      service_tokens_processed_total: 2 * (64 + 1 + 10),
      service_prompt_tokens_total: 2 * (64 + 1),
      service_generated_tokens_total: 2 * 10,
      service_steps_total: 2 * loop.snapshot().steps,
      service_prefix_cache_lookups_total: 2 * 2,
      service_prefix_cache_hits_total: 2,
      service_prefix_cache_evictions_total: 0,
      service_encoder_cache_hits_total: 0,
      service_encoder_cache_misses_total: 0,
      service_sequences_running: 0,
      service_sequences_waiting: 0,
      service_sequences_capacity: 2 * 2,
      service_load: 0,
      service_sequences_completed_totalstop: 0,
      service_sequences_completed_totallength: 2 * 2,
      service_sequences_completed_totalcanceled: 2,
      service_sequences_completed_totalerror: 0,
      // The prefix cache holds one prompt of 68 tokens, in blocks of 16.
      service_kv_cache_blocks_used: 2 * 5,
      service_kv_cache_blocks_total: 2 * 32,
      service_speculative_drafts_total: 0,
      service_speculative_draft_tokens_proposed_total: 0,
      service_speculative_draft_tokens_accepted_total: 0,
      service_speculative_staged_drops_total: 0,
      service_lora_adapters_loaded: 0,
      service_lora_adapter_switches_total: 0,
      service_paged_preemptions_total: 0,
      service_share_preemptions_total: 0,
    };
    assert.deepEqual(Object.fromEntries(values), expected);
  });

  it("report the latencies of streams by series and model, in histograms with the contract's names", () => {
    const loop = new StepLoop(createFakeEngine(), { limits: generousLimits, frameIntervalMs: 0 });
    loop.submit(new Frames(), [job(1, { maxNewTokens: 3, series: "/v1/messages", receivedAt: Date.now() })]);
    while (loop.step());
    const metrics = latencyMetrics(new Map([["m", loop.snapshot()]]));
    const seen = metrics.map((metric) => {
      assert.ok(metric.kind === "histogram");
      const [sample] = metric.samples;
      assert.equal(sample!.counts.length, metric.bounds.length + 1);
      return [metric.name, sample!.series, sample!.model, sample!.counts.reduce((sum, count) => sum + count)];
    });
    assert.deepEqual(seen, [
      ["service_time_to_first_token_seconds", "/v1/messages", "m", 1],
      ["service_inter_token_latency_seconds", "/v1/messages", "m", 2],
    ]);
  });
});
