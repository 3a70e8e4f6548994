// Measurement of a loaded model through the real step loop: scheduler, forward pass, sampler, token frames (messages with new
// tokens) and detokenizer, in one thread and without HTTP. Used by `troupe bench` and by the comparison with the C++ tools.
import { performance } from "node:perf_hooks";
import {
  jobDefaults,
  rowFinishedLength,
  rowFinishedStop,
  rowInts,
  type SequenceJob,
  type TokenFrame,
} from "../../actors/messages.ts";
import type { StepLoop, Subscriber } from "../../actors/model/step/step-loop.ts";
import { greedySampling } from "../../engines/generation.ts";
import { Detokenizer } from "../../engines/text/tokenizer/detokenizer.ts";
import type { Vocabulary } from "../../engines/text/tokenizer/vocabulary.ts";

/**
 * Workload of one measurement: one batch of `sequences`, each with `promptLength` input tokens and `newTokens` output tokens.
 */
export interface Workload {
  readonly kind: "prefill" | "decode" | "decode, random half of the ids" | "embedding";
  readonly sequences: number;
  readonly promptLength: number;
  readonly newTokens: number;
}

export interface Measurement {
  /** Prompt tokens per second for prefill and embedding, new tokens per second for decode; the sum over all sequences. */
  readonly tokensPerSecond: number;
  /** Fraction of the time that is spent outside the engine's forward pass: in scheduler, sampler, token frames and detokenizer. */
  readonly outsideShare: number;
}

export interface Bench {
  readonly loop: StepLoop;
  readonly vocabulary: Vocabulary;
  readonly maxSequences: number;
  /** Id of the LoRA adapter that all sequences use; absent for the base model. */
  readonly adapter?: number;
}

/** Number of prompts created in this process. */
let promptCount = 0;

/** Runs a workload and measures it. Rejects with the scheduler's error if the scheduler does not accept the workload. */
export async function measure(bench: Bench, workload: Workload): Promise<Measurement> {
  return workload.kind === "embedding" ? measurePooled(bench, workload) : measureGenerated(bench, workload);
}

function measureGenerated(bench: Bench, workload: Workload): Measurement {
  const consumer = new TextConsumer(bench.vocabulary);
  const half = workload.kind === "decode, random half of the ids";
  const started = half ? bench.maxSequences : workload.sequences;
  bench.loop.submit(
    consumer,
    Array.from({ length: started }, (_, id) => job(bench, workload, id)),
  );
  const isPrefill = workload.kind === "prefill";
  if (!isPrefill) while (consumer.begun < started) bench.loop.step();
  if (half) bench.loop.cancel(consumer, shuffled(started).slice(0, started - workload.sequences));
  const tokensBefore = consumer.tokens;
  const engineBefore = bench.loop.snapshot().engineMs;
  const startMs = performance.now();
  while (bench.loop.step());
  const ms = performance.now() - startMs;
  const tokens = isPrefill ? workload.sequences * workload.promptLength : consumer.tokens - tokensBefore;
  bench.loop.drop(consumer);
  const engineMs = bench.loop.snapshot().engineMs - engineBefore;
  return { tokensPerSecond: (tokens / ms) * 1000, outsideShare: (ms - engineMs) / ms };
}

async function measurePooled(bench: Bench, { sequences, promptLength }: Workload): Promise<Measurement> {
  const { loop, adapter = 0 } = bench;
  const consumer = new TextConsumer(bench.vocabulary);
  const prompts = Array.from({ length: sequences }, () => nextPrompt(bench, promptLength));
  const engineBefore = loop.snapshot().engineMs;
  const startMs = performance.now();
  const pooled = loop.pool(consumer, {
    id: 0,
    job: { prompts, adapter, priority: 0, hasBegun: false, client: "bench" },
  });
  while (loop.step());
  const ms = performance.now() - startMs;
  await pooled;
  loop.drop(consumer);
  const engineMs = loop.snapshot().engineMs - engineBefore;
  return { tokensPerSecond: (sequences * promptLength * 1000) / ms, outsideShare: (ms - engineMs) / ms };
}

/** Creates a prompt. No two prompts share a prefix, because a prefix from the prefix cache would not be computed. */
function nextPrompt({ vocabulary }: Bench, length: number): Int32Array {
  const shift = 31 * promptCount++;
  // The first and last ids of the vocabulary are skipped, because they may be control tokens.
  const first = Math.min(128, vocabulary.size >> 2);
  return Int32Array.from({ length }, (_, i) => (((i + shift) * 7919) % (vocabulary.size - 2 * first)) + first);
}

function job(bench: Bench, { kind, promptLength, newTokens }: Workload, id: number): SequenceJob {
  const { adapter = 0 } = bench;
  return {
    id,
    prompt: nextPrompt(bench, promptLength),
    // The prefill step already yields the first token.
    maxNewTokens: kind === "prefill" ? 1 : newTokens + 1,
    ignoreEos: true,
    adapter,
    sampling: greedySampling,
    choice: 0,
    breakers: new Int32Array(0),
    ...jobDefaults,
    client: "bench",
  };
}

/** Subscriber that detokenizes the tokens, as the server does. */
class TextConsumer implements Subscriber {
  tokens = 0;
  characters = 0;
  readonly #vocabulary: Vocabulary;
  readonly #open = new Map<number, Detokenizer>();

  constructor(vocabulary: Vocabulary) {
    this.#vocabulary = vocabulary;
  }

  /** Number of sequences that have produced their first token. */
  begun = 0;

  send({ rows, failed }: TokenFrame): void {
    const [failure] = failed;
    if (failure) throw new Error(failure.error.message);
    for (let at = 0; at < rows.length; at += rowInts) {
      const id = rows[at] as number;
      let detokenizer = this.#open.get(id);
      if (!detokenizer) {
        detokenizer = new Detokenizer(this.#vocabulary, null);
        this.#open.set(id, detokenizer);
        this.begun++;
      }
      this.characters += detokenizer.push(rows[at + 1] as number).length;
      this.tokens++;
      if ((rows[at + 2] as number) & (rowFinishedStop | rowFinishedLength)) this.#open.delete(id);
    }
  }
}

/** Returns the numbers 0..count-1 in a fixed pseudo-random order. */
function shuffled(count: number): number[] {
  const ids = Array.from({ length: count }, (_, i) => i);
  let state = 42;
  for (let i = count - 1; i > 0; i--) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const j = state % (i + 1);
    [ids[i], ids[j]] = [ids[j] as number, ids[i] as number];
  }
  return ids;
}
