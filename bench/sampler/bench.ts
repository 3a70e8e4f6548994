// Benchmark of the sampler: microseconds per row for each sampling mode, SIMD kernel compared with the plain reference, over 32
// rows of realistic logits. Run it after changes in engines/decoding/sampler: `node dist/bench/sampler/bench.js [vocabSize]`.
import { pathToFileURL } from "node:url";
import { ReferenceKernel } from "../../engines/decoding/sampler/reference-kernel.ts";
import { Sampler } from "../../engines/decoding/sampler/sampler.ts";
import { WasmKernel } from "../../engines/decoding/sampler/wasm-kernel.ts";
import type { Sampling } from "../../engines/generation.ts";

const ROWS = 32;
const PROMPT_TOKENS = 1024;
const SIMD_MS = 300;
const REFERENCE_MS = 100;

const plain: Sampling = {
  temperature: 1,
  topK: 0,
  topP: 1,
  minP: 0,
  presencePenalty: 0,
  frequencyPenalty: 0,
  repetitionPenalty: 1,
  dry: null,
  logitBias: [],
  seed: 1,
  topLogprobs: null,
};

const cases: Readonly<Record<string, Partial<Sampling>>> = {
  greedy: { temperature: 0 },
  "temperature 1": {},
  "top-k 40": { topK: 40 },
  "top-k 2000": { topK: 2000 },
  "top-p 0.95": { topP: 0.95 },
  "min-p 0.05": { minP: 0.05 },
  "top-k 40, top-p 0.95, min-p 0.05, temperature 0.8": { temperature: 0.8, topK: 40, topP: 0.95, minP: 0.05 },
  "temperature 1.5, top-p 0.95": { temperature: 1.5, topP: 0.95 },
  "greedy, repetition + presence + frequency": {
    temperature: 0,
    repetitionPenalty: 1.1,
    presencePenalty: 0.5,
    frequencyPenalty: 0.5,
  },
  "greedy, DRY over 1024 tokens": {
    temperature: 0,
    dry: { multiplier: 0.8, base: 1.75, allowedLength: 2, sequenceBreakers: [] },
  },
  "greedy, logit bias": { temperature: 0, logitBias: Array.from({ length: 100 }, (_, i) => [i * 31, -100] as const) },
  "greedy, logprobs 5": { temperature: 0, topLogprobs: 5 },
};

export const usage = `npm run bench -- sampler [VOCAB_SIZE]: microseconds per row of logits, SIMD kernel compared with the plain reference
`;

/** Prints the table for rows of `argv[0]` logits; 49152 by default. */
export function main(argv: readonly string[]): void {
  const vocabSize = Number(argv[0] ?? 49152);
  const logits = realisticLogits(vocabSize);
  const simd = WasmKernel.create(vocabSize);
  const reference = new Sampler(new ReferenceKernel(vocabSize));
  console.log(`us a row, ${ROWS} rows x ${vocabSize}`.padEnd(52), "SIMD".padStart(8), "reference".padStart(10));
  for (const [name, change] of Object.entries(cases)) {
    const sampling = { ...plain, ...change };
    const fast = simd ? microsecondsPerRow(new Sampler(simd), sampling, logits, SIMD_MS).toFixed(1) : "none";
    const slow = microsecondsPerRow(reference, sampling, logits, REFERENCE_MS).toFixed(0);
    console.log(name.padEnd(52), fast.padStart(8), slow.padStart(10));
  }
}

/** Returns the median time per row over as many rounds of ROWS rows as fit into `budgetMs`, but at least two. */
function microsecondsPerRow(sampler: Sampler, sampling: Sampling, logits: Float32Array, budgetMs: number): number {
  const prompt = Int32Array.from({ length: PROMPT_TOKENS }, (_, i) => (i * 7919) % 509);
  const states = Array.from({ length: ROWS }, (_, i) => sampler.open(sampling, i, prompt, new Int32Array(0)));
  const end = performance.now() + budgetMs;
  const rounds: number[] = [];
  while (rounds.length < 2 || performance.now() < end) {
    const start = performance.now();
    for (const [row, state] of states.entries()) sampler.sample(state, logits, row, null);
    rounds.push(performance.now() - start);
  }
  rounds.sort((a, b) => a - b);
  return ((rounds[rounds.length >> 1] as number) * 1000) / ROWS;
}

/** Returns normally distributed logits with a few clear favourites, as from a chat model in the middle of a sentence. */
function realisticLogits(vocabSize: number): Float32Array {
  const logits = new Float32Array(ROWS * vocabSize);
  let seed = 1;
  const uniform = () => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return (seed + 0.5) / 2 ** 32;
  };
  for (let i = 0; i < logits.length; i++) {
    logits[i] = 2.5 * Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
  }
  for (let row = 0; row < ROWS; row++) {
    for (let rank = 0; rank < 40; rank++) logits[row * vocabSize + Math.floor(uniform() * vocabSize)] = 16 - rank / 5;
  }
  return logits;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) main(process.argv.slice(2));
