// KV cache of a model without weights: it stores nothing, so it is never full.
import type { Capabilities, Capacity, KvCache } from "../engines/engine.ts";

export const idleKv: KvCache = {
  freeBlocks: Number.MAX_SAFE_INTEGER,
  layout: "none",
  reserve: () => true,
  release: () => {},
  copyPrefix: () => {},
  save: () => null,
  drop: () => {},
  restore: () => {},
  export: () => new Uint8Array(0),
  import: () => null,
};

export const idleCapabilities: Capabilities = {
  truncate: true,
  copyPrefix: false,
  saveState: false,
  generates: true,
  pooling: null,
  pooledLength: 0,
  wholeSequences: false,
  mixesLengths: true,
  chunkTokens: { least: 32, best: 512 },
  adaptersPerStep: 0,
};

export function idleCapacity(maxSequences: number, maxBatchTokens: number, sequenceTokens: number): Capacity {
  const blocks = { blockTokens: 32, kvBlocks: Math.ceil((maxSequences * sequenceTokens) / 32) };
  return { maxSequences, maxBatchTokens, sequenceTokens, maxLogitsRows: maxSequences, ...blocks };
}
