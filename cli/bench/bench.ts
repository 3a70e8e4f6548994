// `troupe bench`: loads one model in this process and measures prefill and decode through the real step loop.
import os from "node:os";
import { checkKind } from "../../actors/model/model-kind.ts";
import { StepLoop } from "../../actors/model/step/step-loop.ts";
import type { LoadedModel } from "../../engines/engine.ts";
import { readModelMetadata } from "../../engines/files/gguf/metadata.ts";
import { prepareAdapter } from "../../engines/files/lora/prepare.ts";
import type { PreparedAdapter } from "../../engines/files/lora/prepared-adapter.ts";
import { nativeHost } from "../../engines/llama/native/native-host.ts";
import { openEngine } from "../../engines/open-engine.ts";
import { createVocabulary } from "../../engines/text/tokenizer/vocabulary.ts";
import { ServerError } from "../../runtime/errors.ts";
import { createLogger } from "../../runtime/log/log.ts";
import { createAdapterFolder } from "../assembly/adapters/adapter-folder.ts";
import {
  type AdapterSetting,
  limitsOf,
  mixtureOf,
  preloadedAdapter,
  takesAdapters,
} from "../assembly/adapters/model-adapters.ts";
import { withDeviceLayers } from "../assembly/models/gpu-layers.ts";
import { modelEngine, modelSpec, schedulerLimits } from "../assembly/models/model-specs.ts";
import type { Config, ModelConfig } from "../config/config.ts";
import { createProgress } from "../progress.ts";
import { type Bench, measure, type Workload } from "./measure.ts";
import { engineTable, type Row, toRow } from "./report.ts";

/** Batch sizes to measure; sizes above max_seqs are skipped. */
const sequenceCounts = [1, 8, 32];

export async function bench(config: Config): Promise<void> {
  const [model] = config.models;
  if (!model || config.models.length > 1)
    throw new ServerError("config_invalid", `bench expects one -m MODEL; got ${config.models.length}`);
  const { promptLen, genLen, depth, iterations, warmup } = config.bench;
  const { json } = config.run;
  const progress = createProgress();
  const log = createLogger({ level: config.troupe.logLevel, format: "text" });
  const generated = generatedWorkloads(config);
  const longest = Math.max(...generated.map(({ promptLength, newTokens }) => promptLength + newTokens + 1));
  const bare = await modelSpec(config, { ...model, maxModelLen: model.maxModelLen ?? longest }, log, progress);
  const setting = { config, folder: takesAdapters(config) ? createAdapterFolder() : "", log, progress };
  const adapter = await benchAdapter(setting, model, bare.path);
  const mixture = await mixtureOf(setting, model, bare.path);
  const whole = { ...bare, adapters: adapter === null ? null : limitsOf(model), mixture };
  const host = nativeHost();
  const choice = await modelEngine(config, model, whole, host, log);
  const spec = await withDeviceLayers(model, whole, choice.engine, host, log);
  const engine = await openEngine(choice.engine);
  const loaded = await engine.load(spec, (fraction) => progress.update("load", fraction, 1));
  checkKind(spec, loaded.capabilities);
  const subject = await subjectOf(loaded, config, spec.path, adapter);
  const workloads = loaded.capabilities.generates ? generated : embeddingWorkloads(config);
  const rows: Row[] = [];
  const total = workloads.length * (iterations + warmup);
  let done = 0;
  for (const workload of workloads) {
    const rounds = [];
    for (let round = -warmup; round < iterations; round++) {
      const measured = await measure(subject, workload);
      if (round >= 0) rounds.push(measured);
      progress.update("bench", ++done, total);
    }
    rows.push(toRow(workload, rounds));
  }
  progress.stop();
  const { card } = loaded;
  loaded.dispose();
  const { threads } = config.troupe;
  const settings = { promptLen, genLen, depth, iterations, warmup, threads, adapter: config.adapter };
  const machine = { cpu: os.cpus()[0]?.model ?? "unknown", cores: os.availableParallelism(), node: process.version };
  const report = { date: new Date().toISOString(), machine, model: card, settings, rows };
  process.stdout.write(
    json ? `${JSON.stringify(report, null, 2)}\n` : `${card.description}, ${card.engine}\n\n${engineTable(rows)}\n`,
  );
}

function embeddingWorkloads({ bench: { promptLen }, maxSeqs }: Config): Workload[] {
  const counts = sequenceCounts.filter((count) => count <= maxSeqs);
  return promptLen.flatMap((promptLength) =>
    counts.map((sequences) => ({ kind: "embedding", sequences, promptLength, newTokens: 0 }) as const),
  );
}

function generatedWorkloads(config: Config): Workload[] {
  const { promptLen, genLen, depth } = config.bench;
  const counts = sequenceCounts.filter((count) => count <= config.maxSeqs);
  const prefill = promptLen.map(
    (promptLength) => ({ kind: "prefill", sequences: 1, promptLength, newTokens: 0 }) as const,
  );
  if (genLen === 0) return prefill;
  const decode = depth.flatMap((promptLength) =>
    counts.map((sequences) => ({ kind: "decode", sequences, promptLength, newTokens: genLen }) as const),
  );
  if (config.maxSeqs < 2) return [...prefill, ...decode];
  const sequences = Math.floor(config.maxSeqs / 2);
  const halves = depth.flatMap((promptLength) => [
    { kind: "decode", sequences, promptLength, newTokens: genLen } as const,
    { kind: "decode, random half of the ids", sequences, promptLength, newTokens: genLen } as const,
  ]);
  return [...prefill, ...decode, ...halves];
}

/** Prepares the configured adapter; null if none is configured. */
async function benchAdapter(
  setting: AdapterSetting,
  model: ModelConfig,
  modelPath: string,
): Promise<PreparedAdapter | null> {
  const { config, folder } = setting;
  const entry = model.adapter.lora.find(({ alias }) => alias === config.adapter);
  if (entry === undefined) return null;
  const { path } = await preloadedAdapter(setting, model, entry);
  return prepareAdapter({ source: path, root: null, modelPath, limits: limitsOf(model), folder });
}

async function subjectOf(
  model: LoadedModel,
  config: Config,
  path: string,
  prepared: PreparedAdapter | null,
): Promise<Bench> {
  const vocabulary = createVocabulary((await readModelMetadata(path)).tokenizer);
  const loop = new StepLoop(model, { limits: schedulerLimits(config), frameIntervalMs: 0 });
  const adapter = prepared === null ? 0 : 1;
  if (prepared !== null) await loop.adapters.load({ id: adapter, ...prepared });
  return { loop, vocabulary, maxSequences: model.capacity.maxSequences, adapter };
}
