// Facts that a worker reports when it has loaded a model that does not generate tokens: a speech or diffusion model.
import type { ModelPlaceReady } from "../messages.ts";

interface TokenlessFacts {
  readonly path: string;
  readonly description: string;
  /** Name of the inference library. */
  readonly engine: string;
  /** Name and version of the inference library. */
  readonly backend: string;
  /** Size of the model's files in bytes. */
  readonly weightBytes: number;
}

/** Returns the facts, with 0 or empty values in all fields that only apply to models that generate tokens. */
export function tokenlessReady(facts: TokenlessFacts): ModelPlaceReady {
  return {
    card: {
      ...facts,
      vocabSize: 0,
      inputLength: 0,
      parameterCount: 0,
      tensorBytes: facts.weightBytes,
      trainedContext: 0,
      kvCacheBytes: 0,
    },
    capacity: { maxSequences: 0, maxBatchTokens: 0, sequenceTokens: 0, maxLogitsRows: 0, blockTokens: 0, kvBlocks: 0 },
    capabilities: {
      truncate: false,
      copyPrefix: false,
      saveState: false,
      generates: false,
      pooling: null,
      pooledLength: 0,
      wholeSequences: false,
      mixesLengths: false,
      chunkTokens: { least: 0, best: 0 },
      adaptersPerStep: 0,
    },
    maxQueue: 0,
    probes: null,
  };
}
