// Owns an open llama.cpp context with its model: forward passes, the sequences in its memory, and their end. Called by the
// models and KV caches of this folder, which know which sequence is whose; a call that fails is a ServerError from here on.
import koffi from "koffi";
import { ServerError } from "../../../runtime/errors.ts";
import type { ComputeLock } from "../compute-lock.ts";
import type { LlamaFunctions } from "./abi.ts";
import type { NativeBatchView } from "./memory/native-batch.ts";
import type { Pointer } from "./pointer.ts";
import type { ThreadPool } from "./thread-pool.ts";
import type { TurnLock } from "./turn-lock.ts";

/** What passes compute with; all contexts of a model have the same. */
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

/** Status of a pass that was not run for want of KV cache. */
const noFreeCell = 1;
const floatBytes = Float32Array.BYTES_PER_ELEMENT;

export class NativeContext {
  readonly functions: LlamaFunctions;
  readonly model: Pointer;
  readonly vocab: Pointer;
  /** False for models that look at whole sequences only. */
  readonly hasMemory: boolean;
  isDisposed = false;
  readonly #context: Pointer;
  readonly #memory: Pointer;
  readonly #cores: Cores;
  /** What the next pass has to hold: it goes through the list of the model's adapters. */
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

  /** ONE pass over what the view holds. */
  decode(view: NativeBatchView): void {
    const status = this.#run(view);
    if (status !== 0) throw decodeError(status, view.batch.n_tokens);
  }

  /** The same, but false where no KV cache cell is free. */
  tryDecode(view: NativeBatchView): boolean {
    const status = this.#run(view);
    if (status !== 0 && status !== noFreeCell) throw decodeError(status, view.batch.n_tokens);
    return status === 0;
  }

  /** Whether passes give the hidden states of all their tokens, too. */
  setEmbeddings(wanted: boolean): void {
    this.functions.setEmbeddings(this.#context, wanted);
  }

  /** Has later passes use an adapter; null = none. The first of them holds the lock, and takes some milliseconds more. */
  setAdapter(adapter: Pointer, listLock: TurnLock): void {
    const addresses = BigUint64Array.of(adapter === null ? 0n : koffi.address(adapter));
    this.functions.setAdapters(this.#context, addresses, adapter === null ? 0 : 1, Float32Array.of(1));
    this.#listLock = listLock;
  }

  /** Null where llama.cpp refuses the file. */
  loadAdapter(path: string): Pointer {
    return this.functions.adapterLoad(this.model, path);
  }

  /** None of them is set. */
  freeAdapters(adapters: readonly Pointer[]): void {
    // A pass that used one of them may still run, where nothing was asked of its output.
    this.functions.synchronize(this.#context);
    for (const adapter of adapters) this.functions.adapterFree(adapter);
  }

  /** Drops what a sequence holds from position `from` on. */
  remove(sequence: number, from: number): void {
    this.functions.memoryRemove(this.#memory, sequence, from, -1);
  }

  /** Shares the first tokens of a sequence with another. Only where all have one pool of cells: else the process ends. */
  share(source: number, target: number, tokens: number): void {
    this.functions.memoryCopy(this.#memory, source, target, 0, tokens);
  }

  stateSize(sequence: number): number {
    return Number(this.functions.stateSize(this.#context, sequence));
  }

  /** Writes what a sequence holds to the beginning of `bytes`. */
  readState(sequence: number, bytes: Uint8Array): void {
    const written = Number(this.functions.stateGet(this.#context, bytes, bytes.length, sequence));
    if (written === 0) throw new ServerError("model_failed", `the state of sequence ${sequence} could not be copied`);
  }

  /** Puts a state in the place of what a sequence holds. */
  writeState(sequence: number, bytes: Uint8Array): void {
    const read = Number(this.functions.stateSet(this.#context, bytes, bytes.length, sequence));
    if (read > 0) return;
    throw new ServerError("model_failed", `a state of ${bytes.length} bytes does not fit sequence ${sequence}`);
  }

  /** Where the logits of the last pass are. */
  logitsPointer(): Pointer {
    return this.functions.getLogits(this.#context);
  }

  /** Hidden states of the last pass; valid until the next. */
  embeddings(floats: number): Float32Array {
    return new Float32Array(koffi.view(this.functions.getEmbeddings(this.#context), floats * floatBytes));
  }

  /** Pooled output of a sequence of the last pass; valid until the next. */
  pooled(sequence: number, floats: number): Float32Array {
    return new Float32Array(koffi.view(this.functions.getPooled(this.#context, sequence), floats * floatBytes));
  }

  /** Tokens of a vocabulary of so many that end a generation. */
  endOfGeneration(vocabSize: number): number[] {
    const tokens: number[] = [];
    for (let token = 0; token < vocabSize; token++) {
      if (this.functions.vocabIsEndOfGeneration(this.vocab, token)) tokens.push(token);
    }
    return tokens;
  }

  /** Token ids of a text; control tokens as plain text. */
  tokenize(text: string): Int32Array {
    const bytes = Buffer.byteLength(text);
    const tokens = new Int32Array(bytes + 2);
    const count = this.functions.tokenize(this.vocab, text, bytes, tokens, tokens.length, false, false);
    return tokens.slice(0, Math.max(count, 0));
  }

  /** Frees the context, and leaves model and cores to whoever has them too. */
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
    // First: other models need not wait until an adapter of this one is loaded.
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

/** Once no context uses them any more. */
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
