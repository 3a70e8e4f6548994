// Model of the wasm engine: the LoadedModel that the step loop calls. It runs on the leader (thread 0) of the thread
// group. It splits a step into passes and computes the leader's part of each pass.
import { ServerError } from "../../runtime/errors.ts";
import type { Batch, EmbeddedPart, StepOutput } from "../batch.ts";
import type { Calibration, Capabilities, Capacity, LoadedModel, ModelCard, TokenClasses } from "../engine.ts";
import type { WasmAdapters } from "./adapters/host.ts";
import type { PagedKv } from "./kv/paged-kv.ts";
import type { MixtureParts } from "./mixture/mixture.ts";
import { RowPlan } from "./mixture/row-plan.ts";
import { checkTokens, Passes } from "./pass/passes.ts";
import type { Pooler } from "./pass/pooler.ts";
import type { PartitionPlan } from "./plan/partition-plan.ts";
import { type PassDescriptor, rowField } from "./plan/pass-descriptor.ts";
import { PassDescriptorWriter } from "./plan/pass-descriptor-writer.ts";
import type { ComputeThread } from "./threads/compute-thread.ts";
import type { HelperThread } from "./threads/helper-thread.ts";
import type { SharedBlocks } from "./threads/shared-blocks.ts";

/** Parts of a loaded model. WasmModel takes ownership of them. */
export interface LoadedParts {
  readonly plan: PartitionPlan;
  readonly card: ModelCard;
  readonly capacity: Capacity;
  readonly tokens: TokenClasses;
  readonly leader: ComputeThread;
  readonly helpers: readonly HelperThread[];
  readonly shared: SharedBlocks;
  readonly kv: PagedKv;
  readonly adapters: WasmAdapters | null;
  /** X-LoRA mixture (adapters weighted by a classifier); null if the model is not a mixture. */
  readonly mixture: MixtureParts | null;
  readonly abortFlag: SharedArrayBuffer | null;
}

export class WasmModel implements LoadedModel {
  readonly card: ModelCard;
  readonly capacity: Capacity;
  readonly capabilities: Capabilities;
  readonly tokens: TokenClasses;
  readonly kv: PagedKv;
  readonly adapters: WasmAdapters | null;
  readonly calibration: Calibration;
  /**
   * Null: this engine has no tokenizer with which the vocabulary of the text workers could be verified. The vocabulary needs no check,
   * because the text workers read it from the same model file.
   */
  readonly tokenize = null;
  readonly #pooler: Pooler;
  readonly #pass: PassDescriptor;
  readonly #writer: PassDescriptorWriter;
  readonly #plan: PartitionPlan;
  readonly #mixture: MixtureParts | null;
  readonly #rowPlan: RowPlan;
  readonly #output: StepOutput;
  /** For each row of the pass: its row in the pooled outputs; -1 if pooling is not wanted. */
  readonly #pooledRowInPass: Int32Array;
  readonly #passes: Passes;
  readonly #inputRows: Float32Array;

  constructor(parts: LoadedParts) {
    const { plan, card, capacity, kv, adapters, mixture, tokens, leader, helpers, shared, abortFlag } = parts;
    const { pooling } = plan.graph;
    this.card = card;
    this.capacity = capacity;
    const keepsWeights = mixture !== null && mixture.keptAfter !== null;
    this.capabilities = capabilitiesOf(plan, adapters ? capacity.maxSequences : 0, !keepsWeights);
    this.tokens = tokens;
    this.kv = kv;
    this.adapters = adapters;
    this.calibration = leader.createCollector();
    this.#pooler = leader.createPooler();
    this.#pass = leader.pass;
    this.#plan = plan;
    this.#mixture = mixture;
    this.#rowPlan = new RowPlan(capacity.maxSequences, mixture?.keptAfter ?? null);
    this.#writer = new PassDescriptorWriter(this.#pass, plan.blockTokens, kv, this.#rowPlan);
    this.#output = {
      logits: new Float32Array(shared.logits),
      logitsRow: new Int32Array(capacity.maxSequences),
      pooled: new Float32Array(capacity.maxSequences * pooling.length),
      pooledRow: new Int32Array(capacity.maxSequences),
    };
    this.#pooledRowInPass = new Int32Array(plan.maxRows);
    this.#passes = new Passes(leader, helpers, abortFlag);
    this.#inputRows = leader.inputRows;
  }

  step(batch: Batch): StepOutput {
    this.#passes.checkUsable();
    this.#check(batch);
    try {
      this.#takePages(batch);
      this.#rowPlan.begin(batch);
      this.#placeOutputs(batch);
      this.#runPasses(batch);
    } catch (error) {
      throw this.#passes.fail(error);
    }
    return this.#output;
  }

  dispose(): void {
    if (this.#passes.dispose()) this.adapters?.dispose();
  }

  /**
   * Allocates the KV pages of all rows before the first pass. Shared pages are thus copied before any row writes to
   * them.
   */
  #takePages(batch: Batch): void {
    for (let row = 0; row < batch.rowCount; row++) {
      const start = batch.position[row] as number;
      const end = start + (batch.length[row] as number);
      // If a row wants logits of several tokens, all of these tokens except the first may be drafts (of speculative decoding). The next
      // step may overwrite drafts, so they do not count as settled (final).
      const settled = end - Math.max((batch.logitsCount[row] as number) - 1, 0);
      if (this.kv.write(batch.slot[row] as number, start, end, settled)) continue;
      throw new ServerError("model_failed", `no KV memory for ${end} tokens: they were not reserved before the step`);
    }
  }

  /** Assigns each batch row its rows in the buffers of logits and of pooled outputs. */
  #placeOutputs(batch: Batch): void {
    const { logitsRow, pooledRow, pooled } = this.#output;
    let logitsRows = 0;
    let pooledRows = 0;
    for (let turn = 0; turn < batch.rowCount; turn++) {
      const row = this.#rowPlan.rows[turn] as number;
      const logitsCount = batch.logitsCount[row] as number;
      logitsRow[row] = logitsCount > 0 ? logitsRows : -1;
      logitsRows += logitsCount;
      pooledRow[row] = batch.wantPooled[row] === 1 ? pooledRows++ : -1;
    }
    pooled.fill(0, 0, pooledRows * this.capabilities.pooledLength);
  }

  /** Runs passes until all tokens of the batch are computed. Each pass takes as many tokens as fit. */
  #runPasses(batch: Batch): void {
    const pass = this.#pass;
    const { passTokens, maxRows } = this.#plan;
    pass.clear();
    for (let turn = 0; turn < batch.rowCount; turn++) {
      const row = this.#rowPlan.rows[turn] as number;
      const length = batch.length[row] as number;
      for (let done = 0; done < length; ) {
        const part = wholePartFrom(batch, row, done);
        const isWhole = part?.first === done;
        const room = passTokens - pass.tokenCount;
        if (pass.rowCount === maxRows || room < (isWhole ? part.length : 1)) this.#nextPass();
        const count = isWhole ? part.length : Math.min((part?.first ?? length) - done, passTokens - pass.tokenCount);
        this.#pooledRowInPass[pass.rowCount] = this.#output.pooledRow[row] as number;
        if (batch.embedded.length > 0) this.#embed(batch, row, done, count);
        this.#writer.add(batch, row, done, count, this.#adapterAddress(batch.adapter[row] as number), isWhole);
        done += count;
      }
    }
    this.#runPass();
  }

  /** Copies the embeddings (of images or audio) among `count` tokens of a row, from token `first` on, to the input rows of the pass. */
  #embed(batch: Batch, row: number, first: number, count: number): void {
    const { inputFloats } = this.#plan;
    for (const part of batch.embedded) {
      if (part.row !== row) continue;
      const from = Math.max(part.first, first);
      const to = Math.min(part.first + part.length, first + count);
      if (from >= to) continue;
      const rows = part.embeddings.subarray((from - part.first) * inputFloats, (to - part.first) * inputFloats);
      this.#inputRows.set(rows, (this.#pass.tokenCount + from - first) * inputFloats);
    }
  }

  #nextPass(): void {
    const nextLogits = this.#pass.firstLogits + this.#pass.outputCount;
    this.#runPass();
    this.#pass.clear();
    this.#pass.firstLogits = nextLogits;
  }

  #runPass(): void {
    if (this.#mixture && this.#writer.beginFirstPass()) {
      this.#passes.run();
      this.#writer.endFirstPass();
    }
    this.#passes.run();
    const { pooled } = this.#output;
    const { pooledLength } = this.capabilities;
    for (let row = 0; row < this.#pass.rowCount; row++) {
      const pooledRow = this.#pooledRowInPass[row] as number;
      if (pooledRow < 0) continue;
      const sum = pooled.subarray(pooledRow * pooledLength, (pooledRow + 1) * pooledLength);
      const length = this.#pass.row(row, rowField.length);
      this.#pooler.pool(this.#pass.row(row, rowField.firstToken), length, sum);
    }
  }

  #adapterAddress(id: number): number {
    const address = id === 0 ? (this.#mixture?.address ?? 0) : this.adapters?.addressOf(id);
    if (address !== undefined) return address;
    throw new ServerError("model_failed", `adapter ${id} is not loaded; load it before a row names it`);
  }

  /**
   * Checks the batch's tokens and its number of logits rows. If there were more logits rows than fit in the buffer,
   * they would overwrite other memory.
   */
  #check(batch: Batch): void {
    checkTokens(batch, this.#plan.shape.vocabSize);
    let logitsRows = 0;
    for (let row = 0; row < batch.rowCount; row++) {
      logitsRows += batch.logitsCount[row] as number;
      this.#adapterAddress(batch.adapter[row] as number);
    }
    const { maxLogitsRows } = this.capacity;
    if (logitsRows <= maxLogitsRows) return;
    throw new ServerError("model_failed", `a step has ${logitsRows} logits rows; expected at most ${maxLogitsRows}`);
  }
}

/**
 * Returns the row's next image part, from token `from` on, whose embeddings attend to each other; undefined = none. The pass needs a
 * separate row for such a part.
 */
function wholePartFrom(batch: Batch, row: number, from: number): EmbeddedPart | undefined {
  return batch.embedded.find((part) => part.row === row && part.attendsAhead && part.first >= from);
}

/**
 * Returns the model's capabilities. In some X-LoRA mixtures, slots keep their adapter weights after some number of tokens. Later rows
 * then skip the first pass, which computes the weights, so the KV of the first pass has gaps. Sequences of such a mixture cannot be
 * truncated, copied or saved.
 */
function capabilitiesOf(
  { graph, passTokens }: PartitionPlan,
  adaptersPerStep: number,
  canShare: boolean,
): Capabilities {
  const { kind, length } = graph.pooling;
  return {
    truncate: canShare,
    copyPrefix: canShare,
    saveState: canShare,
    generates: true,
    pooling: kind,
    pooledLength: length,
    wholeSequences: false,
    mixesLengths: true,
    chunkTokens: { least: 32, best: passTokens },
    adaptersPerStep,
  };
}
