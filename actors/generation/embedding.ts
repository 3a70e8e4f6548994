// Embedding: one request for vectors, or for the scores of a reranker. Each group of inputs is tokenised by a text worker, then
// the model computes its vectors. The groups are small, so that the requests of other clients also get text workers and entries
// in the model's queue.
import type { Capacity } from "../../engines/engine.ts";
import type { Ref } from "../../runtime/actor/ref.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { Embeddings, EmbedInputs, EmbedRequest } from "../api/inference.ts";
import type { LeasedAdapter, ModelProtocol } from "../messages.ts";

/** Maximum number of floats in one response: 16 MiB of floats, or about 80 MiB as JSON text. */
const maxFloats = 4 * 1024 * 1024;
/** Timeout of one group in ms. It is long, because the group may wait for long prompts of other clients. */
const poolTimeoutMs = 60 * 60 * 1000;
/** Assumed size of a token in bytes, used before a text is tokenised. */
const bytesPerToken = 4;

export interface EmbeddingOptions {
  readonly request: EmbedRequest;
  /** Adapter of the request; null: the base model. */
  readonly adapter: LeasedAdapter | null;
  readonly model: {
    /** Tokenises the inputs on a text worker. Throws their validation error. */
    tokenize(inputs: EmbedInputs, signal: AbortSignal): Promise<readonly Int32Array[]>;
    readonly actor: Ref<ModelProtocol>;
    /** Limits of one step. A group is about as large as one step. */
    readonly capacity: Pick<Capacity, "maxSequences" | "maxBatchTokens">;
    readonly pooledLength: number;
    /** Maximum number of sequences that wait in the model's queue. */
    readonly maxQueue: number;
    /** Returns a new id for a group. */
    nextId(): number;
  };
  /** Aborting this signal ends the request: run() rejects with the signal's reason, an Error. */
  readonly signal: AbortSignal;
}

export class Embedding {
  readonly #options: EmbeddingOptions;
  readonly #vectors: Float32Array[] = [];
  /** Ids of the groups that were sent to the model and have not ended. */
  readonly #asked = new Set<number>();
  readonly #closing = new AbortController();
  /** Index of the first input that is not yet in a group. */
  #next = 0;
  #promptTokens = 0;

  constructor(options: EmbeddingOptions) {
    this.#options = options;
  }

  /** Computes the embeddings. Call once. Rejects with the error that ends the request. */
  async run(): Promise<Embeddings> {
    this.#checkSizes();
    const { signal, model } = this.#options;
    // If the model's queue has room, the next group waits there while the model computes a group.
    const groupsAtOnce = model.maxQueue >= model.capacity.maxSequences ? 2 : 1;
    try {
      await new Promise<unknown>((resolve, reject) => {
        signal.addEventListener("abort", () => reject(signal.reason), { once: true });
        Promise.all(Array.from({ length: groupsAtOnce }, () => this.#feed())).then(resolve, reject);
      });
    } finally {
      this.#close();
    }
    return { vectors: this.#vectors, promptTokens: this.#promptTokens };
  }

  /** Checks the length of the vectors, and that those of all inputs fit into one response. Throws invalid_value. */
  #checkSizes(): void {
    const { request, model } = this.#options;
    const { dimensions = model.pooledLength } = request;
    if (dimensions > model.pooledLength) {
      const message = `model "${request.model}" has vectors of ${model.pooledLength} elements, got ${dimensions}; ask for fewer`;
      throw new ServerError("invalid_value", message, { param: "dimensions" });
    }
    const most = Math.floor(maxFloats / model.pooledLength);
    const count = request.inputs.ends.length;
    if (count <= most) return;
    const message = `model "${request.model}" embeds at most ${most} inputs a request, got ${count}; send several`;
    throw new ServerError("invalid_value", message, { param: "input" });
  }

  /** Sends groups to the model, one after another, until no input is left. */
  async #feed(): Promise<void> {
    const { request, adapter, model } = this.#options;
    while (!this.#closing.signal.aborted && this.#next < request.inputs.ends.length) {
      const first = this.#next;
      const prompts = await model.tokenize(this.#nextGroup(), this.#closing.signal);
      if (this.#closing.signal.aborted) return;
      this.#promptTokens += prompts.reduce((sum, prompt) => sum + prompt.length, 0);
      const id = model.nextId();
      this.#asked.add(id);
      const job = { client: request.client, prompts, adapter: adapter?.id ?? 0, priority: request.priority };
      const pooled = await model.actor.ask("pool", { id, job }, { timeoutMs: poolTimeoutMs });
      this.#asked.delete(id);
      const length = pooled.length / prompts.length;
      for (let i = 0; i < prompts.length; i++) {
        const output = pooled.slice(i * length, i * length + (request.dimensions ?? length));
        this.#vectors[first + i] = request.query === undefined ? unitVector(output) : finite(output);
      }
    }
  }

  /** Returns the inputs of the next group, about as many as fit into one step. */
  #nextGroup(): EmbedInputs {
    const { request, model } = this.#options;
    const { maxSequences, maxBatchTokens } = model.capacity;
    const { kind, values, ends } = request.inputs;
    // Each input to score is encoded together with the query.
    const extra = Buffer.byteLength(request.query ?? "");
    const first = this.#next;
    const start = first === 0 ? 0 : (ends[first - 1] as number);
    const most = start + maxBatchTokens * (kind === "texts" ? bytesPerToken : 1);
    const groupSize = () => (ends[this.#next - 1] as number) + extra * (this.#next - first);
    do this.#next++;
    while (this.#next < ends.length && this.#next - first < maxSequences && groupSize() < most);
    const group = ends.slice(first, this.#next).map((end) => end - start);
    const end = start + (group.at(-1) as number);
    return kind === "texts"
      ? { kind, values: values.slice(start, end), ends: group }
      : { kind, values: values.slice(start, end), ends: group };
  }

  /** Stops sending groups, and cancels the groups that were sent to the model. */
  #close(): void {
    this.#closing.abort();
    if (this.#asked.size > 0) this.#options.model.actor.tell("cancel", { ids: [...this.#asked] });
  }
}

function finite(scores: Float32Array): Float32Array {
  if (scores.every(Number.isFinite)) return scores;
  throw new ServerError("model_failed", "the model's score of a document is no number");
}

/** Scales the vector in place to length 1; a zero vector is not changed. Throws model_failed for NaN and infinity. */
function unitVector(vector: Float32Array): Float32Array {
  let squares = 0;
  for (const value of vector) squares += value * value;
  if (!Number.isFinite(squares)) throw new ServerError("model_failed", "the model's output for an input is no number");
  if (squares === 0) return vector;
  const scale = 1 / Math.sqrt(squares);
  for (let i = 0; i < vector.length; i++) vector[i] = (vector[i] as number) * scale;
  return vector;
}
