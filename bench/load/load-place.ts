// Process of `bench load` that loads one model. Reports the load time, and the memory before the load and after the model has
// been used.
import { performance } from "node:perf_hooks";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Batch } from "../../engines/batch.ts";
import type { EngineName, LoadedModel, ModelSpec } from "../../engines/engine.ts";
import { openEngine } from "../../engines/open-engine.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import { residentKiB } from "../proc.ts";

export interface LoadInit {
  readonly engine: EngineName;
  readonly spec: ModelSpec;
}

export interface LoadReady {
  readonly loadMs: number;
  /** Growth of the process's resident memory by loading and using the model. */
  readonly addedBytes: number;
  readonly tensorBytes: number;
}

export const loadModule = new URL(import.meta.url);

export async function start({ init: { engine, spec } }: PlaceContext<LoadInit>): Promise<LoadReady> {
  const opened = await openEngine(engine);
  // The libraries are opened first, so that this time does not count as load time.
  if (engine === "llama") await (await import("../../engines/llama/native/library.ts")).openLibrary(false);
  const beforeBytes = residentBytes();
  const startMs = performance.now();
  const model = await opened.load(spec, () => {});
  const loadMs = performance.now() - startMs;
  fill(model);
  const addedBytes = residentBytes() - beforeBytes;
  const { tensorBytes } = model.card;
  model.dispose();
  return { loadMs, addedBytes, tensorBytes };
}

/**
 * Fills the context of the first sequence, so that the pages of its KV cache and of the engine's scratch memory are resident.
 */
function fill(model: LoadedModel): void {
  const { sequenceTokens, maxBatchTokens } = model.capacity;
  const tokens = Int32Array.from({ length: sequenceTokens }, (_, i) => i % model.card.vocabSize);
  const batch = new Batch(1, maxBatchTokens);
  for (let from = 0; from < tokens.length; from += maxBatchTokens) {
    batch.clear();
    batch.addRow(0, tokens, from, Math.min(from + maxBatchTokens, tokens.length), 1, 0);
    model.step(batch);
  }
}

/** Resident memory after a garbage collection. */
function residentBytes(): number {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  for (let i = 0; i < 3; i++) collect();
  return residentKiB(process.pid) * 1024;
}
