// Owns what runs in the short-lived process that tries both engines on an excerpt of a model; see trial.ts, which starts it.
// They take turns at each piece of work, so that what else the machine does meanwhile meets both.
import { performance } from "node:perf_hooks";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import { Batch } from "../batch.ts";
import type { LoadedModel, ModelSpec } from "../engine.ts";
import { writeExcerpt } from "../gguf/excerpt.ts";
import { openEngine } from "../open-engine.ts";
import type { EngineFigures, TrialFigures } from "./figures.ts";

export interface Trial {
  /** Of the excerpt, which is not written yet. */
  readonly spec: ModelSpec;
  /** Path of the whole model. */
  readonly modelPath: string;
  /** Bytes of weights that the excerpt may have. */
  readonly excerptBytes: number;
  /** Time for all measuring, of both engines together. */
  readonly budgetMs: number;
}

/** Sequences of the widest decode. */
export const trialSequences = 16;
/** Most tokens that a sequence has: the least that llama.cpp allocates. */
export const trialContext = 256;
const promptTokens = 64;
const leastRounds = 2;
/** The first rounds compile code and page memory in. */
const warmUpRounds = 1;

/** A piece of work that both engines are timed at. */
interface Work {
  readonly rows: number;
  readonly tokensPerRow: number;
  readonly steps: number;
}

interface Works {
  readonly prompt: Work;
  readonly oneRow: Work | null;
  readonly sixteenRows: Work | null;
}

function worksFor(context: number, generates: boolean): Works {
  const tokens = Math.min(promptTokens, Math.floor(context / 2));
  if (!generates) {
    return { prompt: { rows: 4, tokensPerRow: Math.ceil(tokens / 4), steps: 1 }, oneRow: null, sixteenRows: null };
  }
  return {
    prompt: { rows: 1, tokensPerRow: tokens, steps: 1 },
    oneRow: { rows: 1, tokensPerRow: 1, steps: 4 },
    sixteenRows: { rows: trialSequences, tokensPerRow: 1, steps: 2 },
  };
}

/** Rejects with what an engine refuses the excerpt for. */
export async function start({ init }: PlaceContext<Trial>): Promise<TrialFigures> {
  const { spec, modelPath, excerptBytes } = init;
  // Opening llama.cpp's libraries waits for a child process that tests them, so it begins first. load() reports an error.
  import("../llama/library.ts").then(({ openLibrary }) => openLibrary(false)).catch(() => undefined);
  const excerpt = writeExcerpt(modelPath, spec.path, excerptBytes);
  // Their code is loaded while the file is written.
  const engines = Promise.all([openEngine("wasm"), openEngine("llama")]);
  const [{ share, vocabSize }, [wasmEngine, llamaEngine]] = await Promise.all([excerpt, engines]);
  const loaded = [wasmEngine, llamaEngine].map((engine) => engine.load(spec, () => {}));
  const [wasm, llama] = (await Promise.all(loaded)).map((model) => new Subject(model, vocabSize)) as [Subject, Subject];
  const works = worksFor(Math.min(wasm.context, llama.context), wasm.generates && llama.generates);
  const { prompt, oneRow, sixteenRows } = works;
  const inTurn = [prompt, oneRow, sixteenRows].filter((work) => work !== null);
  const endMs = performance.now() + init.budgetMs;
  for (let round = 0; round < warmUpRounds + leastRounds || performance.now() < endMs; round++) {
    for (const work of inTurn) for (const subject of [wasm, llama]) subject.run(work, round >= warmUpRounds);
  }
  return { wasm: wasm.figures(works, share), llama: llama.figures(works, share) };
}

/** A model in one engine, and the best time it took for each piece of work. */
class Subject {
  readonly #model: LoadedModel;
  readonly #batch = new Batch(trialSequences, trialContext);
  readonly #tokens: Int32Array;
  /** Tokens that the sequence in each slot holds. */
  readonly #held = new Int32Array(trialSequences);
  readonly #bestMs = new Map<Work, number>();

  constructor(model: LoadedModel, vocabSize: number) {
    this.#model = model;
    this.#tokens = Int32Array.from({ length: trialContext }, (_, i) => (i * 7919) % vocabSize);
  }

  get generates(): boolean {
    return this.#model.capabilities.generates;
  }

  /** Most tokens of a sequence. */
  get context(): number {
    return Math.min(trialContext, this.#model.capacity.sequenceTokens);
  }

  /** Does a piece of work; its time counts where `counts`. */
  run(work: Work, counts: boolean): void {
    this.#makeRoom(work);
    const startMs = performance.now();
    for (let step = 0; step < work.steps; step++) this.#step(work);
    const ms = performance.now() - startMs;
    if (counts) this.#bestMs.set(work, Math.min(ms, this.#bestMs.get(work) ?? Number.POSITIVE_INFINITY));
  }

  figures({ prompt, oneRow, sixteenRows }: Works, share: number): EngineFigures {
    const speed = (work: Work): number => {
      const ms = this.#bestMs.get(work) ?? Number.POSITIVE_INFINITY;
      return ((work.rows * work.tokensPerRow * work.steps * 1000) / ms) * share;
    };
    return {
      prompt: speed(prompt),
      oneRow: oneRow === null ? null : speed(oneRow),
      sixteenRows: sixteenRows === null ? null : speed(sixteenRows),
    };
  }

  /** Empties the slots that have no room for the work; a prompt begins in an empty one. */
  #makeRoom({ rows, tokensPerRow, steps }: Work): void {
    for (let slot = 0; slot < rows; slot++) {
      const held = this.#held[slot] as number;
      if (held === 0 || (tokensPerRow === 1 && held + steps <= this.context)) continue;
      this.#model.kv.release(slot);
      this.#held[slot] = 0;
    }
  }

  #step({ rows, tokensPerRow }: Work): void {
    const batch = this.#batch;
    batch.clear();
    for (let slot = 0; slot < rows; slot++) {
      const from = this.#held[slot] as number;
      const to = from + tokensPerRow;
      this.#model.kv.reserve(slot, to);
      const row = batch.addRow(slot, this.#tokens, from, to, this.generates ? 1 : 0, 0);
      if (!this.generates) batch.wantPooled[row] = 1;
      this.#held[slot] = to;
    }
    this.#model.step(batch);
  }
}
