// ModelDrafter: drafts with a smaller model (the draft model), whose KV cache has the same slots as the target model's.
// Before the drafter drafts for a sequence, it feeds the tokens that this cache lacks (the backlog). It drafts the
// likeliest tokens; each position takes one batched step. Called only by Speculation.
import { Batch } from "../../batch.ts";
import type { LoadedModel } from "../../engine.ts";
import type { Sequence } from "../scheduler/sequence.ts";
import { StepTimeModel } from "../scheduler/step-time-model.ts";
import type { Drafter } from "./drafter.ts";

/** State of a sequence in the draft model's KV cache. */
interface Holding {
  readonly slot: number;
  /** Number of tokens of the sequence in the cache. */
  read: number;
  /**
   * Number of drafted tokens in the cache after the tokens of the sequence. Accepted drafts become tokens of the
   * sequence.
   */
  drafted: number;
}

/**
 * Minimum number of backlog tokens that are read in one call. This is also the maximum number
 * until the time per token is known.
 */
const leastBacklogTokens = 32;
/** A step with at most this number of tokens per sequence is measured as a decode step. */
const fewTokens = 4;

export class ModelDrafter implements Drafter {
  readonly maxDepth = Infinity;
  readonly #model: LoadedModel;
  readonly #vocabSize: number;
  readonly #batch: Batch;
  readonly #stepTimes: StepTimeModel;
  readonly #now: () => number;
  readonly #holdings = new Map<Sequence, Holding>();
  readonly #ownerOf: (Sequence | null)[];
  /** For each row of the batch, the index of its sequence in `sequences`. */
  readonly #rowOwner: Int32Array;

  /** `vocabSize`: number of tokens that the vocabularies of both models have in common. `now` returns milliseconds. */
  constructor(model: LoadedModel, vocabSize: number, now: () => number) {
    const { maxSequences, maxBatchTokens } = model.capacity;
    this.#model = model;
    this.#vocabSize = vocabSize;
    this.#now = now;
    this.#batch = new Batch(maxSequences, maxBatchTokens);
    this.#stepTimes = new StepTimeModel(maxSequences * fewTokens, { decodeSlowdown: 1, maxStepMs: 0 });
    this.#ownerOf = new Array<Sequence | null>(maxSequences).fill(null);
    this.#rowOwner = new Int32Array(maxSequences);
  }

  tokenMs(sequences: number): number {
    return this.#stepTimes.decodeMs(sequences);
  }

  backlog(sequence: Sequence): number {
    if (sequence.slot >= this.#ownerOf.length || sequence.total >= this.#model.capacity.sequenceTokens) return Infinity;
    const holding = this.#holdings.get(sequence);
    const read = holding?.slot === sequence.slot ? holding.read : 0;
    // The last token is always processed again, because its logits are needed.
    return Math.max(sequence.total - read, 1);
  }

  draft(sequences: readonly Sequence[], depths: Int32Array, patienceMs: number): void {
    for (const sequence of sequences) sequence.draftCount = 0;
    this.#batch.clear();
    // Sequences with a short backlog come first, so that they draft in this call. For the other sequences, as many
    // tokens are read as `patienceMs` allows.
    this.#addBacklogs(sequences, 1, fewTokens, Infinity);
    this.#addBacklogs(sequences, fewTokens + 1, Infinity, this.#backlogTokens(patienceMs));
    this.#step(sequences);
    for (let drafted = 1; this.#addDrafts(sequences, depths, drafted); drafted++) this.#step(sequences);
  }

  observe(sequence: Sequence, accepted: number): void {
    const holding = this.#holdings.get(sequence);
    if (!holding) return;
    holding.read += Math.min(accepted, holding.drafted);
    holding.drafted = 0;
  }

  forget(sequence: Sequence): void {
    const holding = this.#holdings.get(sequence);
    if (!holding) return;
    this.#model.kv.release(holding.slot);
    this.#ownerOf[holding.slot] = null;
    this.#holdings.delete(sequence);
  }

  dispose(): void {
    this.#holdings.clear();
    this.#model.dispose();
  }

  #backlogTokens(patienceMs: number): number {
    const tokenMs = this.#stepTimes.promptMs(1);
    return Math.max(tokenMs === Infinity ? 0 : Math.floor(patienceMs / tokenMs), leastBacklogTokens);
  }

  /**
   * Adds rows with the missing tokens of each sequence whose cache lacks `least` to `most` tokens; at most `budget`
   * tokens in total. A row has logits if it reaches the last token of its sequence.
   */
  #addBacklogs(sequences: readonly Sequence[], least: number, most: number, budget: number): void {
    let left = Math.min(budget, this.#model.capacity.maxBatchTokens - this.#batch.tokenCount);
    for (let i = 0; i < sequences.length && left > 0; i++) {
      const sequence = sequences[i] as Sequence;
      const backlog = this.backlog(sequence);
      if (backlog < least || backlog > most || backlog === Infinity) continue;
      const holding = this.#holdingOf(sequence);
      const from = sequence.total - backlog;
      const to = Math.min(sequence.total, from + left);
      if (!this.#isKnown(sequence, from, to) || !this.#model.kv.reserve(holding.slot, to)) continue;
      this.#rowOwner[this.#batch.rowCount] = i;
      this.#batch.addRow(holding.slot, sequence.tokens, from, to, to === sequence.total ? 1 : 0, 0);
      left -= to - from;
      holding.read = to;
      holding.drafted = 0;
    }
  }

  /**
   * For each sequence that wants more than `drafted` draft tokens, adds a row with its last drafted token. Returns
   * false if no row was added.
   */
  #addDrafts(sequences: readonly Sequence[], depths: Int32Array, drafted: number): boolean {
    this.#batch.clear();
    for (let i = 0; i < sequences.length; i++) {
      const sequence = sequences[i] as Sequence;
      if (sequence.draftCount !== drafted || drafted >= (depths[i] as number)) continue;
      const holding = this.#holdingOf(sequence);
      const position = sequence.total + drafted - 1;
      if (position >= this.#model.capacity.sequenceTokens) continue;
      if (!this.#model.kv.reserve(holding.slot, position + 1)) continue;
      this.#rowOwner[this.#batch.rowCount] = i;
      const row = this.#batch.addRow(holding.slot, sequence.draft as Int32Array, drafted - 1, drafted, 1, 0);
      this.#batch.position[row] = position;
      holding.drafted = drafted;
    }
    return this.#batch.rowCount > 0;
  }

  /** Runs the batch. Each row with logits adds a token to the draft of its sequence. */
  #step(sequences: readonly Sequence[]): void {
    const { rowCount, tokenCount, logitsCount } = this.#batch;
    if (rowCount === 0) return;
    const started = this.#now();
    const { logits, logitsRow } = this.#model.step(this.#batch);
    const ms = this.#now() - started;
    if (tokenCount <= rowCount * fewTokens) this.#stepTimes.observe(tokenCount, 0, ms);
    else this.#stepTimes.observe(0, tokenCount, ms);
    for (let row = 0; row < rowCount; row++) {
      if (logitsCount[row] === 0) continue;
      const sequence = sequences[this.#rowOwner[row] as number] as Sequence;
      const token = this.#likeliest(logits, (logitsRow[row] as number) * this.#model.card.vocabSize);
      (sequence.draft as Int32Array)[sequence.draftCount++] = token;
    }
  }

  #likeliest(logits: Float32Array, start: number): number {
    let best = start;
    for (let i = start + 1; i < start + this.#vocabSize; i++) {
      if ((logits[i] as number) > (logits[best] as number)) best = i;
    }
    return best - start;
  }

  /**
   * Whether the draft model knows all tokens from..to. The target model's vocabulary may have additional unused tokens.
   */
  #isKnown({ tokens }: Sequence, from: number, to: number): boolean {
    for (let i = from; i < to; i++) if ((tokens[i] as number) >= this.#model.card.vocabSize) return false;
    return true;
  }

  #holdingOf(sequence: Sequence): Holding {
    const { slot } = sequence;
    const known = this.#holdings.get(sequence);
    if (known?.slot === slot) return known;
    this.forget(sequence);
    const owner = this.#ownerOf[slot];
    if (owner) this.forget(owner);
    const holding = { slot, read: 0, drafted: 0 };
    this.#holdings.set(sequence, holding);
    this.#ownerOf[slot] = sequence;
    return holding;
  }
}
