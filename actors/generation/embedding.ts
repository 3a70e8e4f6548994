// Embedding: processes one request for embedding vectors or reranking scores. A text worker tokenises each group of inputs, then
// the model computes the group's outputs. The groups are small, so that requests of other clients also get text workers and
// entries in the model's queue.
import type { Capacity, Pooling } from "../../engines/engine.ts";
import type { Ref } from "../../runtime/actor/ref.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { Embeddings, EmbedInputs, EmbedRequest } from "../api/inference.ts";
import type { LeasedAdapter, ModelProtocol } from "../messages.ts";
import type { TokenizedInputs } from "../text-tasks/text-handlers.ts";
import { finite, maxSim, unitVectors } from "./vectors.ts";

/** Maximum number of floats in one response: 16 MiB of floats, or about 80 MiB as JSON text. */
const maxFloats = 4 * 1024 * 1024;
/** Maximum number of multiplications for the MaxSim scores of one request: minutes of one core. */
const maxProducts = 2 ** 37;
/** Timeout of one group in ms. Long, because the group may wait for long prompts of other clients. */
const poolTimeoutMs = 60 * 60 * 1000;
/** Estimated bytes per token, used before a text is tokenised. */
const bytesPerToken = 4;

export interface EmbeddingOptions {
  readonly request: EmbedRequest;
  /** Adapter of the request; null = the base model. */
  readonly adapter: LeasedAdapter | null;
  readonly model: {
    /** Tokenises the inputs on a text worker. Throws the inputs' validation error. */
    tokenize(inputs: EmbedInputs, signal: AbortSignal, role?: "query" | "document"): Promise<TokenizedInputs>;
    readonly actor: Ref<ModelProtocol>;
    /** Limits of one model step. A group of inputs is about as large as one step. */
    readonly capacity: Pick<Capacity, "maxSequences" | "maxBatchTokens">;
    readonly pooling: Pooling | null;
    readonly pooledLength: number;
    /** Maximum number of sequences that wait in the model's queue. */
    readonly maxQueue: number;
    /** Returns a new id for a group of inputs. */
    nextId(): number;
  };
  /** Aborting this signal ends the request: run() rejects with the signal's reason, an Error. */
  readonly signal: AbortSignal;
}

export class Embedding {
  readonly #options: EmbeddingOptions;
  readonly #vectors: Float32Array[] = [];
  /** Ids of the groups that were sent to the model and have not been computed yet. */
  readonly #asked = new Set<number>();
  readonly #closing = new AbortController();
  /** Index of the first input that is not yet in a group. */
  #next = 0;
  #promptTokens = 0;
  /** Number of floats in the vectors so far, if the model computes a vector per token. */
  #floats = 0;
  /** Number of multiplications for the scores so far. */
  #products = 0;
  /** Vectors of the query's tokens, for MaxSim scores; null = no MaxSim scores are computed. */
  #queryVectors: Float32Array | null = null;

  constructor(options: EmbeddingOptions) {
    this.#options = options;
  }

  /** Computes the embeddings or scores. Call once. Rejects with the error that ends the request. */
  async run(): Promise<Embeddings> {
    this.#checkSizes();
    const { signal, model } = this.#options;
    const isMaxSim = this.#isMultiVector && this.#options.request.query !== undefined;
    // With two groups at once, one waits in the model's queue while the model computes the other.
    const groupsAtOnce = model.maxQueue >= model.capacity.maxSequences ? 2 : 1;
    try {
      await new Promise<unknown>((resolve, reject) => {
        signal.addEventListener("abort", () => reject(signal.reason), { once: true });
        const feed = () => Promise.all(Array.from({ length: groupsAtOnce }, () => this.#feed()));
        (isMaxSim ? this.#embedQuery().then(feed) : feed()).then(resolve, reject);
      });
    } finally {
      this.#close();
    }
    const form = isMaxSim ? { isMaxSim } : this.#isMultiVector && { tokenVectorLength: this.#dimensions };
    return { vectors: this.#vectors, promptTokens: this.#promptTokens, ...form };
  }

  get #isMultiVector(): boolean {
    return this.#options.model.pooling === "tokens";
  }

  get #dimensions(): number {
    return this.#options.request.dimensions ?? this.#options.model.pooledLength;
  }

  /** Computes the vectors of the query's tokens. */
  async #embedQuery(): Promise<void> {
    const values = new TextEncoder().encode(this.#options.request.query);
    const inputs = { kind: "texts", values, ends: Uint32Array.of(values.length) } as const;
    const { model } = this.#options;
    const { prompts } = await model.tokenize(inputs, this.#closing.signal, "query");
    if (this.#closing.signal.aborted) return;
    const pooled = await this.#pool(prompts);
    this.#queryVectors = unitVectors(pooled, model.pooledLength, model.pooledLength);
  }

  /** Checks the requested vector length, and that the vectors of all inputs fit into one response. Throws invalid_value. */
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
    const { request, model } = this.#options;
    while (!this.#closing.signal.aborted && this.#next < request.inputs.ends.length) {
      const first = this.#next;
      const role = this.#queryVectors === null ? undefined : "document";
      const { prompts, skipped } = await model.tokenize(this.#nextGroup(), this.#closing.signal, role);
      if (this.#closing.signal.aborted) return;
      const pooled = await this.#pool(prompts);
      if (this.#isMultiVector) {
        await this.#takeTokens(first, prompts, pooled, new Set(skipped));
        continue;
      }
      const length = pooled.length / prompts.length;
      for (let i = 0; i < prompts.length; i++) {
        const output = pooled.subarray(i * length, (i + 1) * length);
        const isScored = request.query !== undefined;
        const kept = request.dimensions ?? length;
        this.#vectors[first + i] = isScored ? finite(output.slice()) : unitVectors(output, length, kept);
      }
    }
  }

  /** Computes the pooled outputs of prompts. */
  async #pool(prompts: readonly Int32Array[]): Promise<Float32Array> {
    const { request, adapter, model } = this.#options;
    const { client, priority } = request;
    const hasBegun = this.#promptTokens > 0;
    this.#promptTokens += prompts.reduce((sum, prompt) => sum + prompt.length, 0);
    const id = model.nextId();
    this.#asked.add(id);
    const job = { client, prompts, adapter: adapter?.id ?? 0, priority, hasBegun };
    const pooled = await model.actor.ask("pool", { id, job }, { timeoutMs: poolTimeoutMs });
    this.#asked.delete(id);
    return pooled;
  }

  /** Stores the vectors of the prompts' tokens, or the prompts' scores. Throws `invalid_value` if the request has too many floats. */
  async #takeTokens(
    first: number,
    prompts: readonly Int32Array[],
    pooled: Float32Array,
    skipped: ReadonlySet<number>,
  ): Promise<void> {
    const { pooledLength } = this.#options.model;
    let at = 0;
    for (const [i, prompt] of prompts.entries()) {
      const outputs = pooled.subarray(at * pooledLength, (at + prompt.length) * pooledLength);
      at += prompt.length;
      const vectors = unitVectors(
        outputs,
        pooledLength,
        this.#dimensions,
        (row) => !skipped.has(prompt[row] as number),
      );
      if (this.#queryVectors === null) this.#vectors[first + i] = this.#counted(vectors);
      else this.#vectors[first + i] = await this.#similarity(this.#queryVectors, vectors);
    }
  }

  /** Returns the MaxSim score of a document. Throws `invalid_value` if the request's scores need too many multiplications. */
  async #similarity(query: Float32Array, document: Float32Array): Promise<Float32Array> {
    const { pooledLength } = this.#options.model;
    this.#products += (query.length / pooledLength) * document.length;
    if (this.#products <= maxProducts) return await maxSim(query, document, pooledLength, this.#closing.signal);
    const message =
      `the tokens of the query times those of all documents times ${pooledLength} elements of a vector are more than ` +
      `${maxProducts}, the most of one request; send fewer or shorter documents`;
    throw new ServerError("invalid_value", message, { param: "documents" });
  }

  #counted(vectors: Float32Array): Float32Array {
    this.#floats += vectors.length;
    if (this.#floats <= maxFloats) return vectors;
    const message = `the vectors of all tokens have more than ${maxFloats} elements, the most of one response; send fewer inputs`;
    throw new ServerError("invalid_value", message, { param: "input" });
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
