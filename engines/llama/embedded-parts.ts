// Embedded parts: feeds the rows of a step whose prompts contain images or audio, up to the end of the last embedded part (a tile or audio
// window). A pass of llama.cpp contains either tokens or embeddings. Therefore each part is fed in passes of its own, and the text before
// it in another pass. The text after the last part is computed later, in the pass with the other rows of the step.
import koffi from "koffi";
import { ServerError } from "../../runtime/errors.ts";
import type { Batch, EmbeddedPart } from "../batch.ts";
import type { LlamaFunctions } from "./native/abi.ts";
import { NativeBatchView } from "./native/memory/native-batch.ts";
import type { NativeContext } from "./native/native-context.ts";
import type { RowOrder } from "./row-order.ts";

export interface EmbeddedSizes {
  /** Number of floats in an embedding. */
  readonly width: number;
  /** Maximum number of tokens in a pass. */
  readonly passTokens: number;
  /** Number of positions that llama.cpp needs for each embedding. */
  readonly axes: number;
}

export class EmbeddedParts {
  /** For each row of the batch: number of tokens that run() has fed. The tokens after them are left to the pass with the other rows. */
  readonly first: Int32Array;
  readonly #context: NativeContext;
  readonly #text: NativeBatchView;
  readonly #embedded: NativeBatchView;
  readonly #embeddings: Float32Array;
  readonly #width: number;
  readonly #passTokens: number;

  constructor(
    context: NativeContext,
    text: NativeBatchView,
    maxSequences: number,
    { width, passTokens, axes }: EmbeddedSizes,
  ) {
    this.first = new Int32Array(maxSequences);
    this.#context = context;
    this.#text = text;
    this.#width = width;
    this.#passTokens = passTokens;
    this.#embedded = new NativeBatchView(context.functions, passTokens, width, axes);
    const floats = passTokens * width;
    const { embd } = this.#embedded.batch;
    this.#embeddings = new Float32Array(koffi.view(embd, floats * Float32Array.BYTES_PER_ELEMENT));
  }

  /** Feeds each row that has embedded parts, up to the end of its last part. */
  run(batch: Batch, { rows, ids, count }: RowOrder): void {
    this.first.fill(0);
    if (batch.embedded.length === 0) return;
    for (let i = 0; i < count; i++) {
      const row = rows[i] as number;
      for (const part of batch.embedded) if (part.row === row) this.#feed(batch, part, ids[i] as number);
      if (this.first[row] !== batch.length[row] || batch.logitsCount[row] === 0) continue;
      throw new ServerError("model_failed", "a prompt ends with an image; expected text after it");
    }
  }

  free(functions: LlamaFunctions): void {
    this.#embedded.free(functions);
  }

  #feed(batch: Batch, part: EmbeddedPart, id: number): void {
    const { row, first, length, attendsAhead } = part;
    this.#text.clear();
    for (let index = this.first[row] as number; index < first; index++) this.#text.addToken(batch, row, id, index, 0);
    if (this.#text.count > 0) this.#context.decode(this.#text);
    if (attendsAhead) this.#context.setCausal(false);
    try {
      for (let done = 0; done < length; done += this.#passTokens) {
        this.#feedEmbeddings(batch, part, id, done, Math.min(this.#passTokens, length - done));
      }
    } finally {
      if (attendsAhead) this.#context.setCausal(true);
    }
    this.first[row] = first + length;
  }

  #feedEmbeddings(
    batch: Batch,
    { row, first, embeddings }: EmbeddedPart,
    id: number,
    done: number,
    count: number,
  ): void {
    this.#embedded.setEmbeddings(batch, row, id, first + done, count);
    this.#embeddings.set(embeddings.subarray(done * this.#width, (done + count) * this.#width));
    this.#context.decode(this.#embedded);
  }
}
