// LlamaEncoder: a loaded llama.cpp encoder (bert and related architectures), which is a LoadedModel with pooled outputs
// only. Called only by the step loop, on the thread that loaded it. Every row is a whole sequence; no KV state remains
// after a step.
import assert from "node:assert/strict";
import type { Batch, StepOutput } from "../batch.ts";
import { NoKv } from "../decoding/kv/no-kv.ts";
import type { Capabilities, Capacity, KvCache, LoadedModel, ModelCard, TokenClasses } from "../engine.ts";
import { NativeBatchView } from "./native/memory/native-batch.ts";
import type { NativeContext } from "./native/native-context.ts";

export interface EncoderParts {
  readonly context: NativeContext;
  readonly card: ModelCard;
  readonly capacity: Capacity;
  readonly capabilities: Capabilities;
  /** Maximum number of tokens in one pass. */
  readonly passTokens: number;
}

export class LlamaEncoder implements LoadedModel {
  readonly card: ModelCard;
  readonly capacity: Capacity;
  readonly capabilities: Capabilities;
  readonly tokens: TokenClasses = { endOfGeneration: [], suppressed: [] };
  readonly kv: KvCache;
  readonly #context: NativeContext;
  readonly #native: NativeBatchView;
  readonly #passTokens: number;
  /** Batch rows in the current pass. The native sequence id of a row is its index in this array. */
  readonly #passRows: Int32Array;
  #passCount = 0;
  readonly #logits = new Float32Array(0);
  readonly #logitsRow: Int32Array;
  readonly #pooled: Float32Array;
  readonly #pooledRow: Int32Array;

  constructor({ context, card, capacity, capabilities, passTokens }: EncoderParts) {
    const { maxSequences } = capacity;
    this.#context = context;
    this.card = card;
    this.capacity = capacity;
    this.capabilities = capabilities;
    this.kv = new NoKv(capacity);
    this.#native = new NativeBatchView(context.functions, passTokens);
    this.#passTokens = passTokens;
    this.#passRows = new Int32Array(maxSequences);
    this.#logitsRow = new Int32Array(maxSequences).fill(-1);
    this.#pooled = new Float32Array(maxSequences * capabilities.pooledLength);
    this.#pooledRow = new Int32Array(maxSequences);
  }

  step(batch: Batch): StepOutput {
    this.#native.clear();
    this.#passCount = 0;
    for (let row = 0; row < batch.rowCount; row++) {
      const length = batch.length[row] as number;
      assert.ok(batch.wantPooled[row] === 1 && batch.position[row] === 0, "an encoder pools whole sequences");
      assert.ok(length <= this.#passTokens, `${length} tokens; an encoder of ${this.#passTokens}`);
      if (this.#native.count + length > this.#passTokens) this.#pass(batch);
      for (let index = 0; index < length; index++) this.#native.addToken(batch, row, this.#passCount, index, 1);
      this.#passRows[this.#passCount++] = row;
      this.#pooledRow[row] = row;
    }
    this.#pass(batch);
    return { logits: this.#logits, logitsRow: this.#logitsRow, pooled: this.#pooled, pooledRow: this.#pooledRow };
  }

  tokenize(text: string): Int32Array {
    return this.#context.tokenize(text);
  }

  dispose(): void {
    if (this.#context.isDisposed) return;
    this.#native.free(this.#context.functions);
    this.#context.dispose();
  }

  #pass(batch: Batch): void {
    const count = this.#passCount;
    this.#context.decode(this.#native);
    this.#native.clear();
    this.#passCount = 0;
    const { pooling, pooledLength } = this.capabilities;
    for (let sequence = 0; sequence < count; sequence++) {
      const row = this.#passRows[sequence] as number;
      // llama.cpp returns the mean, but the engine contract requires the sum.
      const factor = pooling === "mean" ? (batch.length[row] as number) : 1;
      const vector = this.#context.pooled(sequence, pooledLength);
      for (let i = 0; i < pooledLength; i++) this.#pooled[row * pooledLength + i] = (vector[i] as number) * factor;
      if (this.#context.hasMemory) this.#context.remove(sequence, -1);
    }
  }
}
