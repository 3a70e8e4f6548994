// Model without weights that generates tokens at a fixed rate, to measure the code after the engine: step loop, token frames
// (messages with new tokens), detokenizer, HTTP. Its thread sleeps for the time that a real forward pass would compute.
import { performance } from "node:perf_hooks";
import type { Batch, StepOutput } from "../../engines/batch.ts";
import type { Capacity, LoadedModel } from "../../engines/engine.ts";
import { idleCapabilities, idleKv } from "../idle-kv.ts";

/** Size of the vocabulary: few tokens, so that sampling costs nothing. In most vocabularies, low ids are short texts. */
const vocabSize = 512;
const firstTextToken = 300;
/**
 * Maximum delay in ms that later, shorter steps make up for. The rest of a longer delay is lost, so the given rate is
 * an upper bound.
 */
const forgivenMs = 50;
const noPooled = new Float32Array(0);

export class PacedModel implements LoadedModel {
  readonly card: LoadedModel["card"];
  readonly capacity: Capacity;
  readonly capabilities = idleCapabilities;
  readonly tokens = { endOfGeneration: [], suppressed: [] };
  readonly tokenize = null;
  readonly kv = idleKv;
  readonly #msPerStep: number;
  readonly #logits: Float32Array;
  readonly #logitsRow: Int32Array;
  readonly #tokenOfRow: Int32Array;
  readonly #sleeper = new Int32Array(new SharedArrayBuffer(4));
  #dueMs = 0;

  /**
   * `tokensPerSecond` is the total rate of a full batch. Each sequence has a fixed share of it, so fewer sequences generate
   * fewer tokens.
   */
  constructor(tokensPerSecond: number, capacity: Capacity) {
    this.capacity = capacity;
    this.#msPerStep = (capacity.maxSequences / tokensPerSecond) * 1000;
    this.#logits = new Float32Array(capacity.maxSequences * vocabSize);
    this.#logitsRow = new Int32Array(capacity.maxSequences);
    this.#tokenOfRow = new Int32Array(capacity.maxSequences);
    this.card = {
      path: "paced",
      description: `${tokensPerSecond} tokens/s without weights`,
      engine: "paced",
      backend: "none",
      vocabSize,
      inputLength: 64,
      parameterCount: 0,
      tensorBytes: 0,
      weightBytes: 0,
      trainedContext: capacity.sequenceTokens,
      kvCacheBytes: 0,
    };
  }

  step(batch: Batch): StepOutput {
    let outputs = 0;
    for (let row = 0; row < batch.rowCount; row++) {
      this.#logitsRow[row] = (batch.logitsCount[row] ?? 0) > 0 ? this.#choose(batch, row, outputs++) : -1;
    }
    if (outputs > 0) this.#sleep();
    return { logits: this.#logits, logitsRow: this.#logitsRow, pooled: noPooled, pooledRow: this.#logitsRow };
  }

  dispose(): void {}

  /** Makes one token the most probable in row `output` of the logits, and returns `output`. */
  #choose(batch: Batch, row: number, output: number): number {
    const position = (batch.position[row] ?? 0) + (batch.length[row] ?? 0);
    const token = firstTextToken + ((position * 7 + (batch.slot[row] ?? 0)) % (vocabSize - firstTextToken));
    const base = output * vocabSize;
    this.#logits[base + (this.#tokenOfRow[output] ?? 0)] = 0;
    this.#logits[base + token] = 1;
    this.#tokenOfRow[output] = token;
    return output;
  }

  #sleep(): void {
    this.#dueMs = Math.max(this.#dueMs, performance.now() - forgivenMs) + this.#msPerStep;
    const leftMs = this.#dueMs - performance.now();
    if (leftMs > 0) Atomics.wait(this.#sleeper, 0, 0, leftMs);
  }
}
