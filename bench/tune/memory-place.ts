// Process of the tune benchmark that loads a model and fills its KV cache. Returns the growth of its resident memory.

import { Batch } from "../../engines/batch.ts";
import type { EngineName, ModelSpec } from "../../engines/engine.ts";
import { openEngine } from "../../engines/open-engine.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import { residentKiB } from "../proc.ts";

export interface MemoryTrial {
  readonly engine: EngineName;
  readonly spec: ModelSpec;
}

export const memoryPlaceModule = new URL(import.meta.url);

const chunkTokens = 256;

export async function start({ init }: PlaceContext<MemoryTrial>): Promise<number> {
  const { engine, spec } = init;
  const before = residentKiB(process.pid);
  const model = await (await openEngine(engine)).load(spec, () => {});
  const { sequenceTokens, maxSequences, maxBatchTokens } = model.capacity;
  const batch = new Batch(maxSequences, maxBatchTokens);
  const tokens = Int32Array.from({ length: sequenceTokens }, (_, i) => (i * 7919) % model.card.vocabSize);
  for (let slot = 0; slot < maxSequences; slot++) {
    for (let from = 0; from < sequenceTokens; from += chunkTokens) {
      const to = Math.min(from + chunkTokens, sequenceTokens);
      batch.clear();
      model.kv.reserve(slot, to);
      batch.addRow(slot, tokens, from, to, to === sequenceTokens ? 1 : 0, 0);
      model.step(batch);
    }
  }
  return (residentKiB(process.pid) - before) * 1024;
}
