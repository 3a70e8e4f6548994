// Encoder of the wasm engine: a LoadedModel that has pooled outputs but no logits. It runs on the leader (thread 0) of
// the thread group. Attention is bidirectional, so each batch row must be a whole sequence, and one pass computes the
// whole row. No KV state is kept between steps.
import assert from "node:assert/strict";
import type { Batch, StepOutput } from "../batch.ts";
import { NoKv } from "../decoding/kv/no-kv.ts";
import type { Calibration, Capabilities, Capacity, KvCache, LoadedModel, ModelCard, TokenClasses } from "../engine.ts";
import { sharedPassTokens } from "./load/encoder-sizes.ts";
import { checkTokens, Passes } from "./pass/passes.ts";
import type { Pooler } from "./pass/pooler.ts";
import type { PartitionPlan } from "./plan/partition-plan.ts";
import { type PassDescriptor, rowField, rowFields } from "./plan/pass-descriptor.ts";
import type { ComputeThread } from "./threads/compute-thread.ts";
import type { HelperThread } from "./threads/helper-thread.ts";

export interface EncoderParts {
  readonly plan: PartitionPlan;
  readonly card: ModelCard;
  readonly capacity: Capacity;
  readonly leader: ComputeThread;
  readonly helpers: readonly HelperThread[];
  readonly abortFlag: SharedArrayBuffer | null;
}

export class WasmEncoder implements LoadedModel {
  readonly card: ModelCard;
  readonly capacity: Capacity;
  readonly capabilities: Capabilities;
  readonly tokens: TokenClasses = { endOfGeneration: [], suppressed: [] };
  readonly kv: KvCache;
  readonly calibration: Calibration;
  /**
   * Null, because this engine has no tokenizer. The text workers read their vocabulary from the same model file, so
   * their vocabulary needs no check against the engine.
   */
  readonly tokenize = null;
  readonly #plan: PartitionPlan;
  readonly #pooler: Pooler;
  readonly #pass: PassDescriptor;
  readonly #passes: Passes;
  #output: StepOutput;
  /** First KV page for the next sequence of the pass; all threads use the same page number. */
  #nextPage = 0;

  constructor({ plan, card, capacity, leader, helpers, abortFlag }: EncoderParts) {
    const { kind, length } = plan.graph.pooling;
    this.card = card;
    this.capacity = capacity;
    this.capabilities = {
      truncate: false,
      copyPrefix: false,
      saveState: false,
      generates: false,
      pooling: kind,
      pooledLength: length,
      wholeSequences: true,
      mixesLengths: true,
      chunkTokens: { least: 1, best: capacity.maxBatchTokens },
      adaptersPerStep: 0,
    };
    this.kv = new NoKv(capacity);
    this.calibration = leader.createCollector();
    this.#plan = plan;
    this.#pooler = leader.createPooler();
    this.#pass = leader.pass;
    this.#passes = new Passes(leader, helpers, abortFlag);
    this.#output = {
      logits: new Float32Array(0),
      logitsRow: new Int32Array(capacity.maxSequences).fill(-1),
      pooled: new Float32Array(capacity.maxSequences * length),
      pooledRow: new Int32Array(capacity.maxSequences),
    };
  }

  step(batch: Batch): StepOutput {
    this.#passes.checkUsable();
    this.#check(batch);
    this.#placeOutputs(batch);
    try {
      this.#runPasses(batch);
    } catch (error) {
      throw this.#passes.fail(error);
    }
    return this.#output;
  }

  dispose(): void {
    this.#passes.dispose();
  }

  #check(batch: Batch): void {
    checkTokens(batch, this.#plan.shape.vocabSize);
    const { passTokens } = this.#plan;
    for (let row = 0; row < batch.rowCount; row++) {
      const length = batch.length[row] as number;
      assert.ok(
        batch.wantPooled[row] === 1 && batch.position[row] === 0,
        "an encoder expects whole sequences with pooled outputs",
      );
      assert.ok(length <= passTokens, `a sequence has ${length} tokens; the encoder takes at most ${passTokens}`);
    }
  }

  /** Assigns rows of the pooled outputs to each batch row (a whole sequence), and sets these outputs to zero. */
  #placeOutputs(batch: Batch): void {
    const { pooledRow } = this.#output;
    let rows = 0;
    for (let row = 0; row < batch.rowCount; row++) {
      pooledRow[row] = rows;
      rows += this.#outputRows(batch.length[row] as number);
    }
    const floats = rows * this.capabilities.pooledLength;
    if (floats > this.#output.pooled.length) this.#output = { ...this.#output, pooled: new Float32Array(floats) };
    this.#output.pooled.fill(0, 0, floats);
  }

  /** Returns the number of pooled outputs of a sequence. */
  #outputRows(tokens: number): number {
    return this.capabilities.pooling === "tokens" ? tokens : 1;
  }

  /** Computes all rows of the batch in as few passes as possible: each pass contains as many sequences as fit. */
  #runPasses(batch: Batch): void {
    const pass = this.#pass;
    const { maxRows, passTokens } = this.#plan;
    const shared = Math.min(sharedPassTokens, passTokens);
    this.#beginPass();
    for (let row = 0; row < batch.rowCount; row++) {
      const isFull = pass.tokenCount + (batch.length[row] as number) > shared || pass.rowCount === maxRows;
      if (isFull && pass.rowCount > 0) {
        this.#runPass(row - pass.rowCount);
        this.#beginPass();
      }
      this.#add(batch, row);
    }
    this.#runPass(batch.rowCount - pass.rowCount);
  }

  #beginPass(): void {
    this.#pass.clear();
    this.#nextPage = 0;
  }

  /** Runs the pass that the pass descriptor describes, and pools its rows (sequences). Its row 0 is batch row `firstRow`. */
  #runPass(firstRow: number): void {
    const pass = this.#pass;
    const { pooledLength } = this.capabilities;
    this.#passes.run();
    for (let row = 0; row < pass.rowCount; row++) {
      const length = pass.row(row, rowField.length);
      const at = (this.#output.pooledRow[firstRow + row] as number) * pooledLength;
      const out = this.#output.pooled.subarray(at, at + this.#outputRows(length) * pooledLength);
      this.#pooler.pool(pass.row(row, rowField.firstToken), length, out);
    }
  }

  /**
   * Adds a row of the batch (a whole sequence) to the pass. Each row gets the next unused KV pages; all pages are free
   * again after the pass.
   */
  #add(batch: Batch, row: number): void {
    const pass = this.#pass;
    const { blockTokens, threads } = this.#plan;
    const length = batch.length[row] as number;
    const blocks = Math.ceil(length / blockTokens);
    const firstPage = pass.addRow(length, 0, blocks);
    pass.rows[(pass.rowCount - 1) * rowFields + rowField.unattended] = this.#unattended(batch, row);
    for (let block = 0; block < blocks; block++) {
      pass.pages[firstPage + block] = this.#nextPage + Math.floor(block / threads);
    }
    this.#nextPage += Math.ceil(blocks / threads);
    pass.addTokens(batch.tokens, batch.offset[row] as number, length);
  }

  /**
   * Returns the number of tokens at the end of a row to which no token attends: the mask tokens with which a query is
   * padded.
   */
  #unattended(batch: Batch, row: number): number {
    const { unattendedToken = null } = this.#plan.graph.pooling;
    if (unattendedToken === null) return 0;
    const first = batch.offset[row] as number;
    let end = first + (batch.length[row] as number);
    const length = end - first;
    while (end > first + 1 && batch.tokens[end - 1] === unattendedToken) end--;
    return length - (end - first);
  }
}
