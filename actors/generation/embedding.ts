// One request for embeddings: has its inputs tokenised and feeds them to the model, in groups, so that neither a text worker
// nor the model's queue is one client's, and gathers the vectors. Its answer leaves as one event.
import type { Capacity } from "../../engines/engine.ts";
import type { Ref } from "../../runtime/actor/ref.ts";
import type { StreamWriter } from "../../runtime/actor/stream-ends.ts";
import { type ErrorRecord, ServerError, toErrorRecord } from "../../runtime/errors.ts";
import type { EmbedInputs, EmbedRequest } from "../api/inference.ts";
import type { EmbedEvent, LeasedAdapter, ModelProtocol } from "../messages.ts";

/** Most numbers of one answer: as JSON text they take five times their 16 MiB. */
const maxFloats = 4 * 1024 * 1024;
/** A group may wait behind long prompts of others, on few cores. */
const poolTimeoutMs = 60 * 60 * 1000;
/** What a token is taken to have, until its text is tokenised. */
const bytesPerToken = 4;

export interface EmbedRunOptions {
  readonly request: EmbedRequest;
  /** null for the base model. */
  readonly adapter: LeasedAdapter | null;
  readonly writer: StreamWriter<EmbedEvent>;
  readonly model: {
    /** Throws what refuses the inputs. */
    tokenize(inputs: EmbedInputs, signal: AbortSignal): Promise<readonly Int32Array[]>;
    readonly actor: Ref<ModelProtocol>;
    /** A group is about what one step can take. */
    readonly capacity: Pick<Capacity, "maxSequences" | "maxBatchTokens">;
    readonly pooledLength: number;
    /** Sequences that may wait at the model. */
    readonly maxQueue: number;
    /** A new id for what the model is asked. */
    nextId(): number;
  };
  /** Called once, when it has ended. */
  readonly onClosed: () => void;
}

export class Embedding {
  readonly #options: EmbedRunOptions;
  readonly #vectors: Float32Array[] = [];
  /** What the model works on. */
  readonly #asked = new Set<number>();
  readonly #closing = new AbortController();
  #next = 0;
  #promptTokens = 0;
  #closed = false;

  constructor(options: EmbedRunOptions) {
    this.#options = options;
  }

  start(): void {
    const { request, model } = this.#options;
    const { capacity, maxQueue, pooledLength } = model;
    const most = Math.floor(maxFloats / pooledLength);
    const count = request.inputs.ends.length;
    if (count > most) {
      const message = `model "${request.model}" embeds at most ${most} inputs a request, got ${count}; send several`;
      this.fail({ code: "invalid_value", message, param: "input" });
      return;
    }
    // While one group is computed the next one waits in the model's queue, where there is one.
    const groupsAtOnce = maxQueue >= capacity.maxSequences ? 2 : 1;
    const feeding = Array.from({ length: groupsAtOnce }, () => this.#feed());
    Promise.all(feeding).then(
      () => this.#end({ type: "embeddings", embeddings: { vectors: this.#vectors, promptTokens: this.#promptTokens } }),
      (error: unknown) => this.fail(toErrorRecord(error)),
    );
  }

  /** The reader is gone. */
  cancel(): void {
    this.#close();
  }

  fail(error: ErrorRecord): void {
    this.#end({ type: "error", error });
  }

  async #feed(): Promise<void> {
    const { request, adapter, model } = this.#options;
    while (!this.#closed && this.#next < request.inputs.ends.length) {
      const first = this.#next;
      const prompts = await model.tokenize(this.#nextGroup(), this.#closing.signal);
      if (this.#closed) return;
      this.#promptTokens += prompts.reduce((sum, prompt) => sum + prompt.length, 0);
      const id = model.nextId();
      this.#asked.add(id);
      const job = { client: request.client, prompts, adapter: adapter?.id ?? 0, priority: request.priority };
      const pooled = await model.actor.ask("pool", { id, job }, { timeoutMs: poolTimeoutMs });
      this.#asked.delete(id);
      const length = pooled.length / prompts.length;
      for (let i = 0; i < prompts.length; i++) {
        this.#vectors[first + i] = unitVector(pooled.slice(i * length, (i + 1) * length));
      }
    }
  }

  /** The next inputs, about as many as one step takes. */
  #nextGroup(): EmbedInputs {
    const { request, model } = this.#options;
    const { maxSequences, maxBatchTokens } = model.capacity;
    const { kind, values, ends } = request.inputs;
    const first = this.#next;
    const start = first === 0 ? 0 : (ends[first - 1] as number);
    const most = start + maxBatchTokens * (kind === "texts" ? bytesPerToken : 1);
    do this.#next++;
    while (this.#next < ends.length && this.#next - first < maxSequences && (ends[this.#next - 1] as number) < most);
    const group = ends.slice(first, this.#next).map((end) => end - start);
    const end = start + (group.at(-1) as number);
    return kind === "texts"
      ? { kind, values: values.slice(start, end), ends: group }
      : { kind, values: values.slice(start, end), ends: group };
  }

  #end(event: EmbedEvent): void {
    if (this.#closed) return;
    this.#close();
    this.#options.writer.write(event);
    this.#options.writer.end();
  }

  #close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#closing.abort();
    if (this.#asked.size > 0) this.#options.model.actor.tell("cancel", { ids: [...this.#asked] });
    this.#options.onClosed();
  }
}

/** The vector, scaled in place to length 1; one of length 0 stays as it is. */
function unitVector(vector: Float32Array): Float32Array {
  let squares = 0;
  for (const value of vector) squares += value * value;
  if (!Number.isFinite(squares)) throw new ServerError("model_failed", "the model's output for an input is no number");
  if (squares === 0) return vector;
  const scale = 1 / Math.sqrt(squares);
  for (let i = 0; i < vector.length; i++) vector[i] = (vector[i] as number) * scale;
  return vector;
}
