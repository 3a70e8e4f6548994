// JSON schemas of the system information and of the results of `doctor`, for the system routes and the command line.
import { z } from "zod";
import type { Diagnosis, EngineReport, SystemInfo } from "../../runtime/host/system.ts";

const bytes = z.int().min(0);
const speed = z.number().min(0);

export const systemInfoSchema = z
  .strictObject({
    os: z.string(),
    kernel: z.string(),
    cpu: z.strictObject({
      brand: z.string(),
      logical_cores: z.int(),
      physical_cores: z.int(),
      avx: z.boolean(),
      avx2: z.boolean(),
      avx512: z.boolean(),
      fma: z.boolean(),
    }),
    memory: z.strictObject({ total_bytes: bytes, available_bytes: bytes }),
    devices: z.array(
      z.strictObject({
        kind: z.string().meta({ description: "cpu, cuda, metal or vulkan." }),
        ordinal: z.int(),
        name: z.string(),
        total_memory_bytes: bytes,
        available_memory_bytes: bytes,
      }),
    ),
    build: z.strictObject({
      version: z.string(),
      git_revision: z.string(),
      cuda: z.boolean(),
      metal: z.boolean(),
      cudnn: z.literal(false),
      flash_attn: z.literal(false),
      flash_attn_v3: z.literal(false),
      cutile: z.literal(false),
      accelerate: z.literal(false),
      mkl: z.literal(false),
    }),
    hf_cache_path: z.string(),
    engines: z
      .array(
        z.strictObject({
          model: z.string(),
          engine: z.string(),
          reason: z.string(),
          trial: z
            .record(
              z.string(),
              z.strictObject({
                prompt_tokens_per_second: speed,
                decode_tokens_per_second: speed
                  .nullable()
                  .meta({ description: "Decode speed of one sequence; null for an encoder." }),
                decode_16_tokens_per_second: speed
                  .nullable()
                  .meta({ description: "Decode speed of 16 sequences together, in total." }),
                weight_bytes: z.number().meta({ description: "Memory of the weights." }),
              }),
            )
            .nullable()
            .meta({ description: "Estimates by engine; null without a trial, or if it failed." }),
        }),
      )
      .meta({ description: "The engine of each model, and the reason for the choice." }),
  })
  .meta({ id: "SystemInfo" });

export const diagnosisSchema = z
  .strictObject({
    system: systemInfoSchema,
    checks: z.array(
      z.strictObject({
        name: z.string(),
        status: z.enum(["ok", "warn", "error"]),
        message: z.string(),
        suggestion: z.string().optional(),
      }),
    ),
  })
  .meta({ id: "SystemDiagnosis" });

export function wireSystemInfo({ host, physicalCores, devices, build, hubCache, engines }: SystemInfo) {
  const { brand, logicalCores, ...sets } = host.cpu;
  return {
    os: host.os,
    kernel: host.kernel,
    cpu: { brand, logical_cores: logicalCores, physical_cores: physicalCores, ...sets },
    memory: { total_bytes: host.memory.totalBytes, available_bytes: host.memory.availableBytes },
    devices: devices.map(({ totalBytes, availableBytes, ...device }) => {
      return { ...device, total_memory_bytes: totalBytes, available_memory_bytes: availableBytes };
    }),
    build: {
      version: build.version,
      git_revision: build.gitRevision ?? "unknown",
      cuda: build.cuda,
      metal: build.metal,
      // Libraries that the API contract lists but this server does not use. The server uses its own kernels or those of
      // llama.cpp.
      ...({
        cudnn: false,
        flash_attn: false,
        flash_attn_v3: false,
        cutile: false,
        accelerate: false,
        mkl: false,
      } as const),
    },
    hf_cache_path: hubCache,
    engines: engines.map(wireEngine),
  } satisfies z.input<typeof systemInfoSchema>;
}

function wireEngine({ model, engine, reason, figures }: EngineReport) {
  if (figures === null) return { model, engine, reason, trial: null };
  const trial = Object.entries(figures).map(([engine, { prompt, oneRow, sixteenRows, weightBytes }]) => {
    const estimates = {
      prompt_tokens_per_second: prompt,
      decode_tokens_per_second: oneRow,
      decode_16_tokens_per_second: sixteenRows,
      weight_bytes: weightBytes,
    };
    return [engine, estimates] as const;
  });
  return { model, engine, reason, trial: Object.fromEntries(trial) };
}

export function wireDiagnosis({ system, checks }: Diagnosis) {
  return { system: wireSystemInfo(system), checks: [...checks] };
}
