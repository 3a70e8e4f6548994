// Memory part of the tune benchmark: compares the estimate of `troupe tune` with the resident memory of a process that loads the
// model and fills its KV cache.
import { join } from "node:path";
import { type Fit, fitOf } from "../../cli/tune/fit.ts";
import { modelSizes } from "../../cli/tune/model-sizes.ts";
import { typesOf, variantsOf } from "../../cli/tune/variants.ts";
import type { EngineName, ModelSpec } from "../../engines/engine.ts";
import { convert, planConversion } from "../../engines/quantization/conversion/conversion.ts";
import { openGgufSource } from "../../engines/quantization/conversion/model-source.ts";
import { computeThreads } from "../../runtime/host/cores.ts";
import { hostFacts } from "../../runtime/host/system.ts";
import { spawnPlace } from "../../runtime/thread/place.ts";
import { type MemoryTrial, memoryPlaceModule } from "./memory-place.ts";

const maxSequences = 2;
const context = 256;
const maxBatchTokens = 4096;
const trialLimitMs = 300_000;
const bf16Bytes = 2;

export const memoryMethod = `Memory: the model with ${maxSequences} sequences of ${context} tokens, all filled, in a fresh process`;

/** Returns a row for each variant and engine: estimate, resident memory, and their ratio. */
export async function memoryRows(path: string, folder: string): Promise<string[][]> {
  const source = await openGgufSource(path);
  const rows: string[][] = [];
  for (const variant of variantsOf(source, { isCheckpoint: false, level: null, floatType: null })) {
    const target = join(folder, "memory.gguf");
    const plan = { source, types: typesOf(source, variant.level, null), importance: new Map(), fileType: null };
    await convert(await planConversion(plan), { target, threads: computeThreads(0) });
    for (const engine of ["wasm", "llama"] as const) {
      const { estimated, resident } = await memoryOf(target, engine);
      const mib = (value: number) => (value / 2 ** 20).toFixed(0);
      const name = variant.level?.name ?? "as it is";
      rows.push([name, variant.typeName, engine, mib(estimated), mib(resident), (estimated / resident).toFixed(3)]);
      process.stderr.write(`${rows.at(-1)?.join(" ")}\n`);
    }
  }
  return rows;
}

/** Returns the estimated memory of the GGUF file at `path`, and the resident memory when it is loaded. */
export async function memoryOf(
  path: string,
  engine: EngineName,
): Promise<{ readonly estimated: number; readonly resident: number }> {
  const source = await openGgufSource(path);
  const { totalBytes, availableBytes } = hostFacts().memory;
  const [asItIs] = variantsOf(source, { isCheckpoint: false, level: null, floatType: null });
  const fit = fitOf({
    ...{ engine, maxSequences, maxBatchTokens, maxModelLength: context, bytesPerKvElement: bf16Bytes },
    ...{ threads: computeThreads(0), weightBytes: asItIs?.bytes ?? 0, sizes: modelSizes(source) },
    memory: { totalBytes, freeBytes: availableBytes, mainFreeBytes: null },
  });
  return { estimated: fit.memoryBytes, resident: await residentBytes(path, engine, fit) };
}

async function residentBytes(path: string, engine: EngineName, fit: Fit): Promise<number> {
  const spec: ModelSpec = {
    ...{ path, maxSequences, maxBatchTokens, maxModelLength: context, blockTokens: 32, extraLogitsRows: 16 },
    ...{ kvType: "auto", pagedKv: null, threads: 0, mmap: true, gpuLayers: 0, abortFlag: null, computeLock: null },
    kvBudget: engine === "wasm" ? { tokens: fit.kvTokens } : null,
  };
  const place = await spawnPlace<MemoryTrial, number>({
    name: "memory",
    module: memoryPlaceModule,
    init: { engine, spec },
    kind: "process",
    startTimeoutMs: trialLimitMs,
    onOutput: () => {},
  });
  await place.stop(1000);
  return place.ready;
}
