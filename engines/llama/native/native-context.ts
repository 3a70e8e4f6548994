// NativeContext: an open llama.cpp context with its model. It runs forward passes, changes the sequences in its memory,
// and frees the context and the model. Called by the models and KV caches, which map slots to sequences. Failed calls
// are converted to ServerErrors here.
import koffi from "koffi";
import { ServerError } from "../../../runtime/errors.ts";
import type { ComputeLock } from "../compute-lock.ts";
import type { LlamaFunctions } from "./abi.ts";
import type { NativeBatchView } from "./memory/native-batch.ts";
import type { Pointer } from "./pointer.ts";
import type { ThreadPool } from "./thread-pool.ts";
import type { TurnLock } from "./turn-lock.ts";

/** Compute resources, shared by all contexts of a model. */
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
  /** Whether the context keeps sequences in memory. False for models that process only whole sequences. */
  readonly hasMemory: boolean;
  isDisposed = false;
  readonly #context: Pointer;
  readonly #memory: Pointer;
  readonly #cores: Cores;
  /**
   * Lock that the next pass must hold, because it reads llama.cpp's list of the model's adapters; null if it does not
   * read the list.
   */
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

  /** Runs ONE forward pass over the tokens in `view`. */
  decode(view: NativeBatchView): void {
    const status = this.#run(view);
    if (status !== 0) throw decodeError(status, view.batch.n_tokens);
  }

  /** Like decode(), but returns false if no KV cell is free. */
  tryDecode(view: NativeBatchView): boolean {
    const status = this.#run(view);
    if (status !== 0 && status !== noFreeCell) throw decodeError(status, view.batch.n_tokens);
    return status === 0;
  }

  /** Enables or disables the output of hidden states for all tokens of a pass. */
  setEmbeddings(wanted: boolean): void {
    this.functions.setEmbeddings(this.#context, wanted);
  }

  /** Sets whether the tokens of later passes attend only to earlier ones. */
  setCausal(causal: boolean): void {
    this.functions.setCausal(this.#context, causal);
  }

  /**
   * Sets the adapter for later passes; null = none. The first of these passes holds `listLock` and takes some
   * milliseconds longer.
   */
  setAdapter(adapter: Pointer, listLock: TurnLock): void {
    const addresses = BigUint64Array.of(adapter === null ? 0n : koffi.address(adapter));
    this.functions.setAdapters(this.#context, addresses, adapter === null ? 0 : 1, Float32Array.of(1));
    this.#listLock = listLock;
  }

  /** Loads an adapter; returns null if llama.cpp rejects the file. */
  loadAdapter(path: string): Pointer {
    return this.functions.adapterLoad(this.model, path);
  }

  /** Frees adapters. None of them may be selected. */
  freeAdapters(adapters: readonly Pointer[]): void {
    // Waits for the GPU, because a pass with one of the adapters may still be running if its output was never read.
    this.functions.synchronize(this.#context);
    for (const adapter of adapters) this.functions.adapterFree(adapter);
  }

  /** Drops a sequence's tokens from position `from` on; -1: all its tokens. */
  remove(sequence: number, from: number): void {
    this.functions.memoryRemove(this.#memory, sequence, from, -1);
  }

  /**
   * Shares the first `tokens` tokens of a sequence with another sequence. Allowed only if all sequences share one pool
   * of cells; otherwise llama.cpp ends the process.
   */
  share(source: number, target: number, tokens: number): void {
    this.functions.memoryCopy(this.#memory, source, target, 0, tokens);
  }

  stateSize(sequence: number): number {
    return Number(this.functions.stateSize(this.#context, sequence));
  }

  /** Writes the state of a sequence to the beginning of `bytes`. */
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

  /** Returns the address of the logits of the last pass. */
  logitsPointer(): Pointer {
    return this.functions.getLogits(this.#context);
  }

  /** Returns the hidden states of the last pass; valid until the next pass. */
  embeddings(floats: number): Float32Array {
    return new Float32Array(koffi.view(this.functions.getEmbeddings(this.#context), floats * floatBytes));
  }

  /** Returns the pooled output of a sequence in the last pass; valid until the next pass. */
  pooled(sequence: number, floats: number): Float32Array {
    return new Float32Array(koffi.view(this.functions.getPooled(this.#context, sequence), floats * floatBytes));
  }

  /** Returns the ids below `vocabSize` of the tokens that end a generation. */
  endOfGeneration(vocabSize: number): number[] {
    const tokens: number[] = [];
    for (let token = 0; token < vocabSize; token++) {
      if (this.functions.vocabIsEndOfGeneration(this.vocab, token)) tokens.push(token);
    }
    return tokens;
  }

  /** Tokenizes a text. Control tokens are not recognised: their names in the text are treated as plain text. */
  tokenize(text: string): Int32Array {
    const bytes = Buffer.byteLength(text);
    const tokens = new Int32Array(bytes + 2);
    const count = this.functions.tokenize(this.vocab, text, bytes, tokens, tokens.length, false, false);
    return tokens.slice(0, Math.max(count, 0));
  }

  /** Frees the context. Its model and compute resources remain, because other contexts may use them. */
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
    // The lock on the adapter list is acquired before the compute lock, so that other models need not wait while an
    // adapter of this model is loaded.
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

/** Frees the compute resources. Call only when no context uses them any more. */
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
