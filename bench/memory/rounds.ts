// Leak test: loads and unloads a model many times and reads this process's resident memory after each round. A round
// loads the model in a separate model process, or inside this process, which also shows leaks of native code.
import { readFileSync } from "node:fs";
import type { ModelPlaceInit, ModelPlaceReady } from "../../actors/messages.ts";
import { modelModule } from "../../actors/placement.ts";
import { table } from "../../cli/bench/report.ts";
import type { ModelSpec } from "../../engines/engine.ts";
import { llamaEngine } from "../../engines/llama/engine.ts";
import { spawnPlace } from "../../runtime/thread/place.ts";
import { parseFlags } from "../command.ts";
import { report } from "../results.ts";

const baseRound = 10;

export const usage = `npm run bench -- memory [FLAGS]: resident memory after many loads and unloads

  --model ID --rounds 200 --save
`;

export async function main(argv: readonly string[]): Promise<void> {
  const { model, rounds, save } = await parseFlags(argv, 200);
  const spec: ModelSpec = {
    path: model,
    maxSequences: 8,
    maxBatchTokens: 512,
    maxModelLength: 512,
    kvBudget: null,
    kvType: "auto",
    blockTokens: 32,
    threads: 0,
    mmap: true,
    gpuLayers: 0,
    abortFlag: null,
    computeLock: null,
    pagedKv: null,
    extraLogitsRows: 16,
  };
  const inPlaces = await residentAfterEach(rounds, () => oncePlace(spec));
  const inProcess = await residentAfterEach(rounds, () => onceHere(spec));
  report(
    {
      name: "memory",
      title: "Resident memory over load / unload rounds of a model",
      method: `${rounds} rounds each, MiB after round ${baseRound}, half way, and at the end, garbage collected.`,
      body: table(
        ["how", "tenth", "half way", "last", "last over tenth"],
        [row("a place of its own (server's memory)", inPlaces), row("inside this process", inProcess)],
      ),
    },
    save,
  );
}

const noSpeculation = {
  promptLookup: false,
  maxDraftTokens: 0,
  draftModel: null,
  mtpTokens: null,
  mtpSampling: "auto",
} as const;

async function oncePlace(spec: ModelSpec): Promise<void> {
  const limits = {
    maxBatchTokens: spec.maxBatchTokens,
    maxPrefillChunkTokens: 512,
    maxDecodeStepsBeforePrefill: 8,
    prefixCacheEntries: 0,
    maxQueue: 8,
    queueTimeoutMs: 0,
    slotShareMs: 0,
    swapBytes: 0,
    decodeSlowdown: 3,
    maxStepMs: 250,
  };
  const place = await spawnPlace<ModelPlaceInit, ModelPlaceReady>({
    name: "model",
    module: modelModule,
    init: {
      engine: "llama",
      spec,
      limits,
      frameIntervalMs: 0,
      mailboxLimit: 64,
      speculation: noSpeculation,
      prefixStore: null,
    },
    kind: "process",
    startTimeoutMs: 60_000,
  });
  await place.stop(10_000);
}

async function onceHere(spec: ModelSpec): Promise<void> {
  const model = await llamaEngine.load(spec, () => {});
  model.dispose();
}

async function residentAfterEach(rounds: number, once: () => Promise<void>): Promise<number[]> {
  const resident: number[] = [];
  for (let round = 1; round <= rounds; round++) {
    await once();
    globalThis.gc?.();
    resident.push(residentMiB());
    process.stderr.write(`\rround ${round} of ${rounds}: ${resident.at(-1)?.toFixed(0)} MiB  `);
  }
  process.stderr.write("\n");
  return resident;
}

/** Returns the anonymous resident memory of this process in MiB. Pages of a mapped file belong to the page cache, so they are no leak. */
function residentMiB(): number {
  const status = readFileSync("/proc/self/status", "utf8");
  return Number(/RssAnon:\s+(\d+)/.exec(status)?.[1]) / 1024;
}

function row(how: string, resident: readonly number[]): string[] {
  const pick = (round: number) => resident[Math.min(round, resident.length) - 1] ?? Number.NaN;
  const [base, half, last] = [pick(baseRound), pick(Math.floor(resident.length / 2)), pick(resident.length)];
  return [how, base.toFixed(1), half.toFixed(1), last.toFixed(1), (last / base).toFixed(3)];
}
