// NativeContext: an open llama.cpp context with its model: forward passes, the sequences in its memory, and disposal.
// Called by the models and KV caches, which map slots to sequences; a failed call becomes a ServerError here.
import koffi from "koffi";
import { ServerError } from "../../../runtime/errors.ts";
import type { ComputeLock } from "../compute-lock.ts";
import type { LlamaFunctions } from "./abi.ts";
import type { NativeBatchView } from "./memory/native-batch.ts";
import type { Pointer } from "./pointer.ts";
import type { ThreadPool } from "./thread-pool.ts";
import type { TurnLock } from "./turn-lock.ts";

/** Compute resources; all contexts of a model share them. */
export interface Cores {
  readonly threadPool: ThreadPool;
  readonly computeLock: ComputeLock | null;
}

export interface NativeHandles {
  readonly functions: LlamaFunctions;
  readonly model: Pointer;
  readonly context: Pointer;
  readonly cores: Cores;
}

/** Status of a pass that did not run because no KV cell was free. */
const noFreeCell = 1;
const floatBytes = Float32Array.BYTES_PER_ELEMENT;

export class NativeContext {
  readonly functions: LlamaFunctions;
  readonly model: Pointer;
  readonly vocab: Pointer;
  /** False for models that only look at whole sequences. */
  readonly hasMemory: boolean;
  isDisposed = false;
  readonly #context: Pointer;
  readonly #memory: Pointer;
  readonly #cores: Cores;
  /** Lock for the next pass to hold, because it reads the list of the model's adapters. */
  #listLock: TurnLock | null = null;

  constructor({ functions, model, context, cores }: NativeHandles) {
    this.functions = functions;
    this.vocab = functions.modelGetVocab(model);
    this.model = model;
    this.#context = context;
    this.#memory = functions.getMemory(context);
    this.hasMemory = this.#memory !== null;
    this.#cores = cores;
    const { pointer } = cores.threadPool;
    functions.attachThreads(context, pointer, pointer);
  }

  get pointer(): Pointer {
    return this.#context;
  }

  /** Runs ONE pass over the view's tokens. */
  decode(view: NativeBatchView): void {
    const status = this.#run(view);
    if (status !== 0) throw decodeError(status, view.batch.n_tokens);
  }

  /** As decode(), but returns false if no KV cell is free. */
  tryDecode(view: NativeBatchView): boolean {
    const status = this.#run(view);
    if (status !== 0 && status !== noFreeCell) throw decodeError(status, view.batch.n_tokens);
    return status === 0;
  }

  /** Switches hidden states of all tokens of a pass on or off. */
  setEmbeddings(wanted: boolean): void {
    this.functions.setEmbeddings(this.#context, wanted);
  }

  /**
   * Sets the adapter of later passes; null = none. The first of them holds the lock and takes some milliseconds more.
   */
  setAdapter(adapter: Pointer, listLock: TurnLock): void {
    const addresses = BigUint64Array.of(adapter === null ? 0n : koffi.address(adapter));
    this.functions.setAdapters(this.#context, addresses, adapter === null ? 0 : 1, Float32Array.of(1));
    this.#listLock = listLock;
  }

  /** Null if llama.cpp refuses the file. */
  loadAdapter(path: string): Pointer {
    return this.functions.adapterLoad(this.model, path);
  }

  /** Frees adapters, none of which is selected. */
  freeAdapters(adapters: readonly Pointer[]): void {
    // A pass with one of them may still run if its output was never read.
    this.functions.synchronize(this.#context);
    for (const adapter of adapters) this.functions.adapterFree(adapter);
  }

  /** Drops a sequence's tokens from position `from` on. */
  remove(sequence: number, from: number): void {
    this.functions.memoryRemove(this.#memory, sequence, from, -1);
  }

  /**
   * Shares the first `tokens` tokens of a sequence with another. Only with one pool of cells; otherwise it ends the
   * process.
   */
  share(source: number, target: number, tokens: number): void {
    this.functions.memoryCopy(this.#memory, source, target, 0, tokens);
  }

  stateSize(sequence: number): number {
    return Number(this.functions.stateSize(this.#context, sequence));
  }

  /** Writes a sequence's state to the beginning of `bytes`. */
  readState(sequence: number, bytes: Uint8Array): void {
    const written = Number(this.functions.stateGet(this.#context, bytes, bytes.length, sequence));
    if (written === 0) throw new ServerError("model_failed", `the state of sequence ${sequence} could not be copied`);
  }

  /** Replaces a sequence's content with a saved state. */
  writeState(sequence: number, bytes: Uint8Array): void {
    const read = Number(this.functions.stateSet(this.#context, bytes, bytes.length, sequence));
    if (read > 0) return;
    throw new ServerError("model_failed", `a state of ${bytes.length} bytes does not fit sequence ${sequence}`);
  }

  /** Address of the logits of the last pass. */
  logitsPointer(): Pointer {
    return this.functions.getLogits(this.#context);
  }

  /** Hidden states of the last pass; valid until the next. */
  embeddings(floats: number): Float32Array {
    return new Float32Array(koffi.view(this.functions.getEmbeddings(this.#context), floats * floatBytes));
  }

  /** Pooled output of a sequence in the last pass; valid until the next. */
  pooled(sequence: number, floats: number): Float32Array {
    return new Float32Array(koffi.view(this.functions.getPooled(this.#context, sequence), floats * floatBytes));
  }

  /** Token ids that end a generation, among the first `vocabSize` ids. */
  endOfGeneration(vocabSize: number): number[] {
    const tokens: number[] = [];
    for (let token = 0; token < vocabSize; token++) {
      if (this.functions.vocabIsEndOfGeneration(this.vocab, token)) tokens.push(token);
    }
    return tokens;
  }

  /** Token ids of a text; control tokens are read as plain text. */
  tokenize(text: string): Int32Array {
    const bytes = Buffer.byteLength(text);
    const tokens = new Int32Array(bytes + 2);
    const count = this.functions.tokenize(this.vocab, text, bytes, tokens, tokens.length, false, false);
    return tokens.slice(0, Math.max(count, 0));
  }

  /** Frees the context. Model and compute resources stay, for other contexts that use them. */
  free(): void {
    this.isDisposed = true;
    this.functions.free(this.#context);
  }

  dispose(): void {
    this.free();
    this.functions.modelFree(this.model);
    closeCores(this.#cores);
  }

  #run(view: NativeBatchView): number {
    view.finish();
    // Released first: other models need not wait for an adapter load of this one.
    const listLock = this.#listLock;
    listLock?.acquire();
    try {
      const status = this.#compute(view);
      if (status === 0) this.#listLock = null;
      return status;
    } finally {
      listLock?.release();
    }
  }

  #compute(view: NativeBatchView): number {
    const { computeLock } = this.#cores;
    computeLock?.acquire();
    try {
      return this.functions.decode(this.#context, view.batch);
    } finally {
      computeLock?.release();
    }
  }
}

/** Call once no context uses them. */
export function closeCores({ threadPool, computeLock }: Cores): void {
  threadPool.free();
  computeLock?.close();
}

function decodeError(status: number, tokenCount: number): ServerError {
  const meanings: Readonly<Record<number, string>> = {
    [noFreeCell]: "no KV cache cell is free",
    2: "it was aborted",
    [-1]: "the batch is not valid",
    [-2]: "memory could not be allocated",
    [-3]: "the computation failed",
  };
  const meaning = meanings[status] ?? "unknown status";
  const message = `the forward pass over ${tokenCount} tokens failed with status ${status}: ${meaning}`;
  return new ServerError("model_failed", message);
}
