// Pooled outputs of a model that generates. A pooled output is the sum of a row's hidden states after the output norm
// (mean), the hidden state of its last token, or its scores. In a pass with pooled outputs, llama.cpp also computes the
// logits of every token. Therefore these passes contain as few tokens as possible, and never more than the context's
// number of outputs.
import assert from "node:assert/strict";
import type { Batch } from "../batch.ts";
import type { Pooling } from "../engine.ts";
import type { NativeBatchView } from "./native/memory/native-batch.ts";
import type { NativeContext } from "./native/native-context.ts";
import type { RowOrder } from "./row-order.ts";

export interface PoolingOptions {
  readonly pooling: Pooling | null;
  readonly pooledLength: number;
  readonly maxSequences: number;
  /** Maximum number of outputs in a pass. */
  readonly maxOutputs: number;
}

export class PooledPasses {
  readonly row: Int32Array;
  output = new Float32Array(0);
  readonly #context: NativeContext;
  readonly #native: NativeBatchView;
  readonly #options: PoolingOptions;
  /**
   * For each token of the pass: `#outputOf` is the row of `output` to which the token's state is added, `#sequenceOf`
   * is the token's native sequence id.
   */
  readonly #outputOf: Int32Array;
  readonly #sequenceOf: Int32Array;

  constructor(context: NativeContext, native: NativeBatchView, options: PoolingOptions) {
    this.#context = context;
    this.#native = native;
    this.#options = options;
    this.row = new Int32Array(options.maxSequences).fill(-1);
    this.#outputOf = new Int32Array(options.maxOutputs);
    this.#sequenceOf = new Int32Array(options.maxOutputs);
  }

  /** Runs the rows that want pooled outputs, and stores the results in `output`. */
  run(batch: Batch, order: RowOrder): void {
    let count = 0;
    for (let row = 0; row < batch.rowCount; row++) this.row[row] = batch.wantPooled[row] === 1 ? count++ : -1;
    if (count === 0) return;
    const { pooling, pooledLength, maxSequences } = this.#options;
    assert.ok(pooling !== null, "this model has no pooled outputs");
    if (this.output.length === 0) this.output = new Float32Array(maxSequences * pooledLength);
    this.output.fill(0, 0, count * pooledLength);
    if (pooling !== "mean") this.#feedHeads(batch, order);
    this.#context.setEmbeddings(true);
    try {
      this.#feedPooled(batch, order);
    } finally {
      this.#context.setEmbeddings(false);
    }
  }

  /** Feeds the tokens of each pooled row, except the row's last token, in a pass without outputs. */
  #feedHeads(batch: Batch, order: RowOrder): void {
    this.#native.clear();
    for (let i = 0; i < order.count; i++) {
      const row = order.rows[i] as number;
      if (batch.wantPooled[row] !== 1) continue;
      const head = (batch.length[row] as number) - 1;
      for (let index = 0; index < head; index++) this.#native.addToken(batch, row, order.ids[i] as number, index, 0);
    }
    if (this.#native.count > 0) this.#context.decode(this.#native);
  }

  /**
   * Feeds the tokens whose hidden states are part of the results. A pass has at most `maxOutputs` tokens, so there may
   * be several passes.
   */
  #feedPooled(batch: Batch, order: RowOrder): void {
    this.#native.clear();
    for (let i = 0; i < order.count; i++) {
      const row = order.rows[i] as number;
      if (batch.wantPooled[row] !== 1) continue;
      const length = batch.length[row] as number;
      for (let index = this.#options.pooling === "mean" ? 0 : length - 1; index < length; index++) {
        if (this.#native.count === this.#options.maxOutputs) this.#pass();
        const token = this.#native.count;
        this.#outputOf[token] = this.row[row] as number;
        this.#sequenceOf[token] = order.ids[i] as number;
        this.#native.addToken(batch, row, order.ids[i] as number, index, 1);
      }
    }
    this.#pass();
  }

  #pass(): void {
    const count = this.#native.count;
    this.#context.decode(this.#native);
    this.#native.clear();
    const { pooling, pooledLength } = this.#options;
    if (pooling === "rank") {
      for (let token = 0; token < count; token++) {
        this.#add(token, this.#context.pooled(this.#sequenceOf[token] as number, pooledLength), 0);
      }
      return;
    }
    const states = this.#context.embeddings(count * pooledLength);
    for (let token = 0; token < count; token++) this.#add(token, states, token * pooledLength);
  }

  /**
   * Adds a vector to the pooled output to which token number `token` of the pass belongs. The vector begins at index
   * `from` of `values`.
   */
  #add(token: number, values: Float32Array, from: number): void {
    const { pooledLength } = this.#options;
    const to = (this.#outputOf[token] as number) * pooledLength;
    for (let i = 0; i < pooledLength; i++) {
      this.output[to + i] = (this.output[to + i] as number) + (values[from + i] as number);
    }
  }
}
