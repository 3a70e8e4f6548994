// Trial process: times both engines on an excerpt of a model. Started by trial.ts. The engines alternate, so that other
// load on the machine affects both.
import { rm } from "node:fs/promises";
import { performance } from "node:perf_hooks";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import { Batch } from "../batch.ts";
import type { LoadedModel, ModelSpec } from "../engine.ts";
import { writeExcerpt } from "../files/gguf/excerpt.ts";
import { openEngine } from "../open-engine.ts";
import type { EngineFigures, TrialFigures } from "./figures.ts";

export interface Trial {
  /** Model spec of the excerpt. Its file does not exist yet: this process writes it. */
  readonly spec: ModelSpec;
  /** Path of the whole model. */
  readonly modelPath: string;
  /** Maximum size of the excerpt's weights in bytes. */
  readonly excerptBytes: number;
  /** Time limit for all measurements of both engines together. */
  readonly budgetMs: number;
}

/** Number of sequences in the largest decode batch measured. */
export const trialSequences = 16;
/** Maximum length of a sequence in tokens: the smallest context that llama.cpp allocates. */
export const trialContext = 256;
const promptTokens = 64;
/** Number of texts in one pass (encoders only); together they fill the pass. */
const textsTogether = 4;
const leastRounds = 2;
/** Number of uncounted rounds at the start, which compile code and fault in memory pages. */
const warmUpRounds = 1;

/** One kind of work to be timed. */
interface Workload {
  readonly rows: number;
  readonly tokensPerRow: number;
  readonly steps: number;
}

interface Workloads {
  /** Prefill workloads; all have the same weight in the result. */
  readonly prompts: readonly Workload[];
  readonly oneRow: Workload | null;
  readonly sixteenRows: Workload | null;
}

function workloadsFor(context: number, generates: boolean): Workloads {
  const tokens = Math.min(promptTokens, Math.floor(context / 2));
  const one: Workload = { rows: 1, tokensPerRow: tokens, steps: 1 };
  // Encoder workloads: one text, or several texts in one pass.
  if (!generates) return { prompts: [one, { ...one, rows: textsTogether }], oneRow: null, sixteenRows: null };
  return {
    prompts: [one],
    oneRow: { rows: 1, tokensPerRow: 1, steps: 4 },
    sixteenRows: { rows: trialSequences, tokensPerRow: 1, steps: 2 },
  };
}

/** Runs the trial. Rejects with the engine's error if an engine cannot load the excerpt. */
export async function start({ init }: PlaceContext<Trial>): Promise<TrialFigures> {
  const { spec, modelPath, excerptBytes } = init;
  const excerpt = writeExcerpt(modelPath, spec.path, excerptBytes);
  // The engines' code loads while the excerpt is written.
  const engines = Promise.all([openEngine("wasm"), openEngine("llama")]);
  const [{ share, vocabSize }, [wasmEngine, llamaEngine]] = await Promise.all([excerpt, engines]);
  const loading = [wasmEngine, llamaEngine].map((engine) => engine.load(spec, () => {}));
  const loaded = await Promise.all(loading);
  // Removes the file's name while llama.cpp keeps the content mapped. So no file remains, even if a process is killed.
  await rm(spec.path).catch(() => undefined);
  const [wasm, llama] = loaded.map((model) => new TimedModel(model, vocabSize)) as [TimedModel, TimedModel];
  const workloads = workloadsFor(Math.min(wasm.context, llama.context), wasm.generates && llama.generates);
  const { prompts, oneRow, sixteenRows } = workloads;
  const inTurn = [...prompts, oneRow, sixteenRows].filter((workload) => workload !== null);
  const endMs = performance.now() + init.budgetMs;
  for (let round = 0; round < warmUpRounds + leastRounds || performance.now() < endMs; round++) {
    for (const workload of inTurn) for (const model of [wasm, llama]) model.run(workload, round >= warmUpRounds);
  }
  return { wasm: wasm.figures(workloads, share), llama: llama.figures(workloads, share) };
}

/** A model loaded in one engine, with its best time for each workload. */
class TimedModel {
  readonly #model: LoadedModel;
  readonly #batch = new Batch(trialSequences, trialContext);
  readonly #tokens: Int32Array;
  /** Number of tokens in the sequence of each slot. */
  readonly #held = new Int32Array(trialSequences);
  readonly #bestMs = new Map<Workload, number>();

  constructor(model: LoadedModel, vocabSize: number) {
    this.#model = model;
    this.#tokens = Int32Array.from({ length: trialContext }, (_, i) => (i * 7919) % vocabSize);
  }

  get generates(): boolean {
    return this.#model.capabilities.generates;
  }

  /** Maximum length of a sequence in tokens. */
  get context(): number {
    return Math.min(trialContext, this.#model.capacity.sequenceTokens);
  }

  /** Runs a workload once. Records its time if `counts` is true. */
  run(workload: Workload, counts: boolean): void {
    this.#makeRoom(workload);
    rest();
    // Runs an unmeasured decode step first, because it wakes the engine's threads.
    if (workload.tokensPerRow === 1) this.#step(workload);
    const startMs = performance.now();
    for (let step = 0; step < workload.steps; step++) this.#step(workload);
    const ms = performance.now() - startMs;
    if (counts) this.#bestMs.set(workload, Math.min(ms, this.#bestMs.get(workload) ?? Number.POSITIVE_INFINITY));
  }

  figures({ prompts, oneRow, sixteenRows }: Workloads, share: number): EngineFigures {
    const speed = (workload: Workload): number => {
      const ms = this.#bestMs.get(workload) ?? Number.POSITIVE_INFINITY;
      return ((workload.rows * workload.tokensPerRow * workload.steps * 1000) / ms) * share;
    };
    return {
      prompt: prompts.length / prompts.reduce((sum, prompt) => sum + 1 / speed(prompt), 0),
      oneRow: oneRow === null ? null : speed(oneRow),
      sixteenRows: sixteenRows === null ? null : speed(sixteenRows),
      weightBytes: Math.round(this.#model.card.weightBytes / share),
    };
  }

  /** Empties the slots that have too little room for the workload; a prompt always starts in an empty slot. */
  #makeRoom({ rows, tokensPerRow, steps }: Workload): void {
    for (let slot = 0; slot < rows; slot++) {
      const held = this.#held[slot] as number;
      if (held === 0 || (tokensPerRow === 1 && held + steps + 1 <= this.context)) continue;
      this.#model.kv.release(slot);
      this.#held[slot] = 0;
    }
  }

  #step({ rows, tokensPerRow }: Workload): void {
    const batch = this.#batch;
    batch.clear();
    for (let slot = 0; slot < rows; slot++) {
      const from = this.#held[slot] as number;
      const to = from + tokensPerRow;
      if (!this.#model.kv.reserve(slot, to)) throw new Error(`no KV memory for ${to} tokens of sequence ${slot}`);
      const row = batch.addRow(slot, this.#tokens, from, to, this.generates ? 1 : 0, 0);
      if (!this.generates) batch.wantPooled[row] = 1;
      this.#held[slot] = to;
    }
    this.#model.step(batch);
  }
}

/**
 * Pause before each measurement. The wasm engine's threads spin for 2 ms after a pass, on the cores that the other
 * engine uses next.
 */
const restMs = 4;
const never = new Int32Array(new SharedArrayBuffer(4));

function rest(): void {
  Atomics.wait(never, 0, 0, restMs);
}
