// Owns one request for embeddings: feeds its inputs to the model in groups, so that neither the model's queue nor this
// thread is taken by one client, and gathers the vectors. Its answer leaves as one event.
import type { Capacity } from "../../engines/engine.ts";
import type { Ref } from "../../runtime/actor/ref.ts";
import type { StreamWriter } from "../../runtime/actor/stream-ends.ts";
import { type ErrorRecord, ServerError, toErrorRecord } from "../../runtime/errors.ts";
import type { EmbedRequest } from "../inference.ts";
import type { EmbedEvent, ModelProtocol, RunAdapter } from "../messages.ts";
import type { TextModel } from "./text-model.ts";

/** Most numbers of one answer: as JSON text they take five times their 16 MiB. */
const maxFloats = 4 * 1024 * 1024;
/** A group may wait behind long prompts of others, on few cores. */
const poolTimeoutMs = 60 * 60 * 1000;

export interface EmbedRunOptions {
  readonly request: EmbedRequest;
  /** null for the base model. */
  readonly adapter: RunAdapter | null;
  readonly writer: StreamWriter<EmbedEvent>;
  readonly model: {
    readonly text: TextModel;
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

export class EmbedRun {
  readonly #options: EmbedRunOptions;
  readonly #vectors: Float32Array[] = [];
  /** What the model works on. */
  readonly #asked = new Set<number>();
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
    if (request.inputs.length > most) {
      const message = `model "${request.model}" embeds at most ${most} inputs a request, got ${request.inputs.length}; send several`;
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
    while (!this.#closed && this.#next < request.inputs.length) {
      const first = this.#next;
      const prompts = this.#nextGroup();
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

  #nextGroup(): Int32Array[] {
    const { request, model } = this.#options;
    const { maxSequences, maxBatchTokens } = model.capacity;
    const prompts: Int32Array[] = [];
    for (let tokens = 0; tokens < maxBatchTokens && prompts.length < maxSequences; ) {
      const input = request.inputs[this.#next];
      if (input === undefined) break;
      this.#next++;
      const prompt = model.text.inputTokens(input, request.truncateInputs);
      prompts.push(prompt);
      tokens += prompt.length;
    }
    this.#promptTokens += prompts.reduce((sum, prompt) => sum + prompt.length, 0);
    return prompts;
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
