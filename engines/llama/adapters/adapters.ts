// LoRA adapters of one llama.cpp model: the loaded adapters, and the adapter that passes use. Called on the model's
// thread; files are read on the adapter loading thread (adapter-worker.ts). llama.cpp keeps the list of a model's
// adapters without a lock. Loading and freeing an adapter change the list, and the first pass after a change of adapter
// reads it. Each of these operations therefore holds the loader's lock.
import assert from "node:assert/strict";
import { ServerError } from "../../../runtime/errors.ts";
import type { AdapterHost } from "../../engine.ts";
import { type LlamaLibrary, lastWords } from "../native/library.ts";
import type { NativeContext } from "../native/native-context.ts";
import type { Pointer } from "../native/pointer.ts";
import { AdapterLoader } from "./adapter-loader.ts";

export class LlamaAdapters implements AdapterHost {
  readonly #library: LlamaLibrary;
  readonly #context: NativeContext;
  readonly #loader: AdapterLoader;
  readonly #adapters = new Map<number, Pointer>();
  /** Unloaded adapters, which are freed when no load is running. */
  readonly #unused: Pointer[] = [];
  /** Id of the adapter that passes use; 0 = none. */
  #selected = 0;
  /** Promise of the most recent load; the next load waits for it. */
  #lastLoad: Promise<void> = Promise.resolve();

  constructor(library: LlamaLibrary, context: NativeContext) {
    this.#library = library;
    this.#context = context;
    this.#loader = new AdapterLoader(library, context.model);
  }

  load(id: number, path: string): Promise<void> {
    const load = this.#lastLoad.then(() => this.#load(id, path));
    this.#lastLoad = load.catch(() => {});
    return load;
  }

  unload(id: number): void {
    // Disposing the model has already freed its adapters.
    if (this.#context.isDisposed) return;
    // llama.cpp may keep a compute graph that points to the adapter. This is safe, because it rebuilds the graph before
    // the next pass.
    if (id === this.#selected) this.select(0);
    this.#unused.push(this.#adapterOf(id));
    this.#adapters.delete(id);
    this.#freeUnused();
  }

  /** Selects the adapter for later passes; 0 = none. The first pass after a change takes some milliseconds longer. */
  select(id: number): void {
    if (id === this.#selected) return;
    this.#context.setAdapter(id === 0 ? null : this.#adapterOf(id), this.#loader.lock);
    this.#selected = id;
  }

  /** Ends the loading thread. Call before the model is disposed, which frees all adapters. */
  dispose(): void {
    this.#loader.dispose();
  }

  async #load(id: number, path: string): Promise<void> {
    assert.ok(id > 0 && !this.#adapters.has(id), `adapter ${id} is already loaded`);
    this.#checkOpen();
    try {
      const address = await this.#loader.load(path).catch((error: Error) => fail(error.message));
      this.#checkOpen();
      this.#adapters.set(id, address === 0n ? this.#loadAgain(path) : address);
    } finally {
      if (!this.#context.isDisposed) this.#freeUnused();
    }
  }

  #checkOpen(): void {
    if (this.#context.isDisposed) fail("the model has been unloaded");
  }

  /**
   * Repeats a failed load to get its error message. llama.cpp's log can be read only on this thread, and only while the
   * loading thread is idle.
   */
  #loadAgain(path: string): Pointer {
    return this.#library.withLog((lines) => this.#context.loadAdapter(path) ?? fail(lastWords(lines)));
  }

  /**
   * Frees unused adapters if the lock is free. Does nothing during a load, because this method is called again when the
   * load ends.
   */
  #freeUnused(): void {
    if (this.#unused.length === 0 || !this.#loader.lock.tryAcquire()) return;
    this.#context.freeAdapters(this.#unused.splice(0));
    this.#loader.lock.release();
  }

  #adapterOf(id: number): Pointer {
    const adapter = this.#adapters.get(id);
    if (adapter === undefined) throw new ServerError("model_failed", `adapter ${id} is not loaded`);
    return adapter;
  }
}

function fail(reason: string): never {
  throw new ServerError("lora_device_load_failed", `llama.cpp could not load the prepared adapter: ${reason}`);
}
