// OpenAPI description of POST /v1/models/tune, which benchmarks a model and recommends settings, and the schemas of its request
// and result.
import { z } from "zod";
import { type TuneCandidate, type TuneResult, tuneProfiles } from "../../actors/api/tuning.ts";
import { jsonAnswer, type Operation } from "../operation.ts";

const MAX_TEXT_LENGTH = 4096;
const LONGEST_EDGE = 65_536;
const MOST_IMAGES = 1024;

const optionalText = z.string().min(1).max(MAX_TEXT_LENGTH).nullish();

export const tuneRequestSchema = z.strictObject({
  model_id: z.string().min(1).max(MAX_TEXT_LENGTH).meta({
    description:
      "Id of a configured model, `default`, the path of a file beside a configured model or in the server's caches of models, or the hub name of a cached model.",
  }),
  profile: z.enum(tuneProfiles).default("balanced").meta({
    description:
      "quality: the best quality that fits in memory; fast: the most tokens per second; balanced: speed, weighted with quality.",
  }),
  requested_isq: optionalText.meta({
    description: "The only quantization level to measure, such as Q4K; unset: that of the setting `quant`, or all.",
  }),
  cpu: z.boolean().nullish().meta({ description: "Ignore GPUs; unset: as the model is configured." }),
  dtype: z.enum(["auto", "f16", "bf16", "f32"]).nullish().meta({
    description:
      "Number type of float weights that are not quantized; auto: as in the model's files; unset: as the model is configured.",
  }),
  hf_revision: optionalText.meta({ description: "Revision on the model hub, for a hub name." }),
  token_source: optionalText.meta({ description: "No effect: the server downloads nothing for a tuning." }),
  max_image_length: z
    .int()
    .min(1)
    .max(LONGEST_EDGE)
    .nullish()
    .meta({ description: "No effect: the weights alone decide." }),
  max_num_images: z
    .int()
    .min(1)
    .max(MOST_IMAGES)
    .nullish()
    .meta({ description: "No effect: the weights alone decide." }),
});

const bytes = z.int().min(0);
const speed = z.number().min(0).nullable();

export const tuneCandidateSchema = z
  .strictObject({
    isq: z.string().nullable().meta({ description: "Value of the setting `isq`; null: the weights stay as they are." }),
    isq_name: z.string().meta({ description: "Number type of most weights." }),
    estimated_size_bytes: bytes.meta({ description: "Memory of the weights." }),
    estimated_memory_bytes: bytes.meta({ description: "Memory of weights, KV cache and scratch." }),
    vram_usage_percent: z.number().min(0).meta({ description: "Estimated memory over the memory of the device." }),
    max_context_tokens: z.int().min(0).meta({ description: "Longest sequence that fits." }),
    context_is_model_max: z.boolean(),
    quality: z.enum(["baseline", "near-lossless", "good", "acceptable", "degraded"]),
    fit_status: z.enum(["fits", "hybrid", "too-large"]),
    device_layers_cli: z
      .string()
      .optional()
      .meta({ description: "Value of the setting `device_layers`; not sent if no GPU is used." }),
    recommended: z.boolean(),
    engine: z.enum(["llama", "wasm"]),
    threads: z.int().min(1).meta({ description: "Number of compute threads, the fastest of those measured." }),
    max_seqs: z.int().min(1),
    max_num_batched_tokens: z.int().min(1),
    prompt_tokens_per_second: speed.meta({ description: "Prefill speed; null: not measured." }),
    decode_tokens_per_second: speed.meta({
      description: "Decode speed of one sequence; null: not measured, or an encoder.",
    }),
    decode_16_tokens_per_second: speed.meta({ description: "Decode speed of 16 sequences together, in total." }),
  })
  .meta({ id: "TuneCandidate" });

export const tuneResultSchema = z
  .strictObject({
    model_id: z.string(),
    profile: z.enum(tuneProfiles),
    backend: z.string().meta({ description: "cpu, cuda, metal or vulkan." }),
    candidates: z.array(tuneCandidateSchema),
    recommended_isq: z.string().nullable(),
    device_layers: z
      .array(z.strictObject({ ordinal: z.int().min(0), layers: z.int().min(0) }))
      .nullable()
      .meta({ description: "Layers on each GPU of the recommendation; null: no GPU is used." }),
    device_layers_cli: z.string().nullable().meta({ description: "The same as the setting `device_layers`." }),
    paged_attn_mode: z.enum(["auto", "on", "off"]),
    recommended_command: z.string(),
    total_vram_bytes: bytes.meta({ description: "Memory of the GPU, or of the machine." }),
    warnings: z.array(z.string()),
    notes: z.array(z.string()),
    measured_seconds: z.number().min(0),
  })
  .meta({ id: "TuneResult" });

export const tuneModelOperation: Operation = {
  id: "tuneModel",
  tag: "Models",
  summary: "Find the settings of a model that are best on this machine",
  description:
    "Measures short runs of the model, for a minute at most, in a process beside the server, which slows down other requests meanwhile. One tuning runs at a time. It ends if the client disconnects. Nothing is changed; the result has the command that serves the model.",
  body: tuneRequestSchema,
  answers: jsonAnswer(tuneResultSchema, "The candidates and the recommendation"),
  errors: ["model_not_found", "unsupported", "conflict", "cancelled", "tuning_failed"],
};

export function wireTuneResult(result: TuneResult): z.input<typeof tuneResultSchema> {
  const recommended = result.candidates.find(({ isRecommended }) => isRecommended);
  const layers = recommended?.gpuLayers ?? null;
  return {
    model_id: result.model,
    profile: result.profile,
    backend: result.backend,
    candidates: result.candidates.map(wireCandidate),
    recommended_isq: recommended?.isq ?? null,
    device_layers: layers === null ? null : [{ ordinal: 0, layers }],
    device_layers_cli: layers === null ? null : `0:${layers}`,
    paged_attn_mode: "auto",
    recommended_command: result.recommendedCommand,
    total_vram_bytes: result.totalBytes,
    warnings: [...result.warnings],
    notes: [...result.notes],
    measured_seconds: result.seconds,
  };
}

function wireCandidate(candidate: TuneCandidate): z.input<typeof tuneCandidateSchema> {
  const { speeds } = candidate;
  return {
    isq: candidate.isq,
    isq_name: candidate.isqName,
    estimated_size_bytes: candidate.weightBytes,
    estimated_memory_bytes: candidate.memoryBytes,
    vram_usage_percent: candidate.memoryPercent,
    max_context_tokens: candidate.contextTokens,
    context_is_model_max: candidate.isModelContext,
    quality: candidate.quality,
    fit_status: candidate.fit,
    ...(candidate.gpuLayers !== null && { device_layers_cli: `0:${candidate.gpuLayers}` }),
    recommended: candidate.isRecommended,
    engine: candidate.engine,
    threads: candidate.threads,
    max_seqs: candidate.maxSequences,
    max_num_batched_tokens: candidate.maxBatchTokens,
    prompt_tokens_per_second: speeds?.prompt ?? null,
    decode_tokens_per_second: speeds?.decode ?? null,
    decode_16_tokens_per_second: speeds?.batchedDecode ?? null,
  };
}
