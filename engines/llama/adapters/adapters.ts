// Owns the LoRA adapters of one llama.cpp model: which are loaded, and which one its passes use. Called on the model's thread;
// files are read on a thread of their own (adapter-worker.ts). llama.cpp keeps a list of a model's adapters with no lock of its
// own: loading and freeing change it, and the first pass with another adapter reads it. So each of them holds ours.
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
  /** To be freed when nothing is being loaded. */
  readonly #unused: Pointer[] = [];
  /** The one that passes use, 0 = none. */
  #selected = 0;
  /** The load that was asked for last. */
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
    // They went with the model.
    if (this.#context.isDisposed) return;
    // A graph that the next pass will not use again may still point to it: nothing reads that before it is made anew.
    if (id === this.#selected) this.select(0);
    this.#unused.push(this.#adapterOf(id));
    this.#adapters.delete(id);
    this.#freeUnused();
  }

  /** Has later passes use an adapter; 0 = none. Costs the next pass some milliseconds where another one was used before. */
  select(id: number): void {
    if (id === this.#selected) return;
    this.#context.setAdapter(id === 0 ? null : this.#adapterOf(id), this.#loader.lock);
    this.#selected = id;
  }

  /** To be called before the model is disposed, which frees all of them. */
  dispose(): void {
    this.#loader.dispose();
  }

  async #load(id: number, path: string): Promise<void> {
    assert.ok(id > 0 && !this.#adapters.has(id), `adapter ${id} is loaded`);
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

  /** To learn why it failed: only on this thread, and while the other one rests, can llama.cpp's log be read. */
  #loadAgain(path: string): Pointer {
    return this.#library.withLog((lines) => this.#context.loadAdapter(path) ?? fail(lastWords(lines)));
  }

  /** Where something is being loaded, the end of that asks again: the lock is free by then. */
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
