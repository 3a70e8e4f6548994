// Engine metrics: converts the statistics of models to the metrics of the HTTP API.
import type { LatencyCounts, LatencyMetric, ScalarMetric } from "../../api/engine-metric.ts";
import type { ModelStatistics, SeriesLatencies, TextStatistics } from "../../messages.ts";
import { firstTokenBounds, interTokenBounds } from "../../model/stream-latency.ts";
import { remoteMetrics } from "./remote-metrics.ts";

/** Returns the token latencies of streamed responses. `models` maps model ids to their statistics. */
export function latencyMetrics(models: ReadonlyMap<string, ModelStatistics>): readonly LatencyMetric[] {
  const samples = (counts: (latencies: SeriesLatencies) => LatencyCounts) =>
    [...models].flatMap(([model, { latencies }]) =>
      latencies.map((latency) => ({ series: latency.series, model, ...counts(latency) })),
    );
  return [
    {
      name: "service_time_to_first_token_seconds",
      kind: "histogram",
      help: "Time from a streaming request to its first token",
      bounds: firstTokenBounds,
      samples: samples(({ firstToken }) => firstToken),
    },
    {
      name: "service_inter_token_latency_seconds",
      kind: "histogram",
      help: "Time between the tokens of a stream",
      bounds: interTokenBounds,
      samples: samples(({ interToken }) => interToken),
    },
  ];
}

export function textMetrics({ waiting, slow, ended }: TextStatistics): readonly ScalarMetric[] {
  return [
    {
      name: "service_text_tasks_waiting",
      kind: "gauge",
      help: "Requests that wait for a text worker",
      samples: [{ labels: {}, value: waiting }],
    },
    {
      name: "service_text_tasks_slow_total",
      kind: "counter",
      help: "Requests whose text took so long to process that others were served first",
      samples: [{ labels: {}, value: slow }],
    },
    {
      name: "service_text_tasks_ended_total",
      kind: "counter",
      help: "Requests refused because their text took too much time or memory to process, or crashed its thread",
      labelNames: ["reason"],
      samples: Object.entries(ended).map(([reason, value]) => ({ labels: { reason }, value })),
    },
  ];
}

const sequences = (m: ModelStatistics): number => m.running + m.waiting + m.preempted;

/** Returns sums over all models, because these metrics have no label for the model. */
export function engineMetrics(models: readonly ModelStatistics[]): readonly ScalarMetric[] {
  const sum = (value: (model: ModelStatistics) => number) => models.reduce((total, model) => total + value(model), 0);
  const counter = (name: string, help: string, value: (model: ModelStatistics) => number): ScalarMetric => {
    return { name, kind: "counter", help, samples: [{ labels: {}, value: sum(value) }] };
  };
  const gauge = (name: string, help: string, value: (model: ModelStatistics) => number): ScalarMetric => {
    return { name, kind: "gauge", help, samples: [{ labels: {}, value: sum(value) }] };
  };
  const deepest = Math.max(0, ...models.map(({ speculation }) => speculation.acceptedAt.length));
  return [
    counter(
      "service_tokens_processed_total",
      "Tokens computed: of prompts, and generated",
      (m) => m.tokens + m.promptTokens,
    ),
    counter(
      "service_prompt_tokens_total",
      "Prompt tokens computed; those from the prefix cache are not counted",
      (m) => {
        return m.promptTokens;
      },
    ),
    counter("service_generated_tokens_total", "Tokens generated", (m) => m.tokens),
    counter("service_steps_total", "Steps: forward passes over tokens of one or many sequences", (m) => m.steps),
    counter("service_step_seconds_total", "Time in steps: drafts, scheduling, forward pass, sampling", (m) => {
      return m.totalMs / 1000;
    }),
    counter("service_forward_pass_seconds_total", "Time in the engines' forward passes", (m) => m.engineMs / 1000),
    counter(
      "service_prefix_cache_lookups_total",
      "Prompts looked up in the prefix cache",
      (m) => m.prefixCache.lookups,
    ),
    counter("service_prefix_cache_hits_total", "Prompts that began with a cached prefix", (m) => m.prefixCache.hits),
    counter("service_prefix_cache_evictions_total", "Cached prefixes dropped", (m) => m.prefixCache.evictions),
    counter("service_encoder_cache_hits_total", "Images and audio of requests that were not encoded again", (m) => {
      return m.encoderCache.hits;
    }),
    counter("service_encoder_cache_misses_total", "Images and audio of requests that were encoded", (m) => {
      return m.encoderCache.misses;
    }),
    gauge("service_sequences_running", "Sequences that have a slot", (m) => m.running),
    gauge("service_sequences_waiting", "Sequences without a slot", (m) => m.waiting + m.preempted),
    gauge("service_sequences_capacity", "Slots", (m) => m.slots),
    {
      name: "service_load",
      kind: "gauge",
      help: "Sequences with and without a slot, as a share of the slots: above 1 they wait; 0 without a loaded model",
      samples: [{ labels: {}, value: sum((m) => m.slots) === 0 ? 0 : sum(sequences) / sum((m) => m.slots) }],
    },
    {
      name: "service_sequences_completed_total",
      kind: "counter",
      help: "Sequences that have ended, by reason",
      labelNames: ["reason"],
      samples: (["stop", "length", "cancelled", "error"] as const).map((reason) => {
        return { labels: { reason: reason === "cancelled" ? "canceled" : reason }, value: sum((m) => m.ended[reason]) };
      }),
    },
    gauge(
      "service_kv_cache_blocks_used",
      "Blocks of KV cache in use, cached prefixes included",
      (m) => m.kvBlocks.used,
    ),
    gauge("service_kv_cache_blocks_total", "Blocks of KV cache", (m) => m.kvBlocks.total),
    counter("service_speculative_drafts_total", "Drafts verified", (m) => m.speculation.drafts),
    counter("service_speculative_draft_tokens_proposed_total", "Tokens drafted", (m) => m.speculation.proposed),
    counter(
      "service_speculative_draft_tokens_accepted_total",
      "Drafted tokens accepted",
      (m) => m.speculation.accepted,
    ),
    {
      name: "service_speculative_accepted_per_pos_total",
      kind: "counter",
      help: "Drafted tokens accepted, by their position in the draft",
      labelNames: ["position"],
      samples: Array.from({ length: deepest }, (_, position) => {
        return { labels: { position: `${position}` }, value: sum((m) => m.speculation.acceptedAt[position] ?? 0) };
      }),
    },
    counter("service_speculative_staged_drops_total", "Drafts dropped before they were verified", (m) => {
      return m.speculation.dropped;
    }),
    gauge("service_lora_adapters_loaded", "LoRA adapters in memory", (m) => m.adapters.loaded),
    counter("service_lora_adapter_switches_total", "Steps with another adapter than the step before", (m) => {
      return m.adapters.switches;
    }),
    counter("service_paged_preemptions_total", "Times a sequence lost its slot for lack of KV memory", (m) => {
      return m.memoryPreemptions;
    }),
    ...remoteMetrics(models),
    counter("service_share_preemptions_total", "Times a sequence lost its slot to a client with fewer slots", (m) => {
      return m.sharePreemptions;
    }),
  ];
}
