// Owns the thread that loads a model's adapters, from outside: starts it with the first, and hands it one path after the other.
// Used by adapters.ts alone. A thread that has ended rejects what it had to load; the next load starts another.
import { Worker } from "node:worker_threads";
import koffi from "koffi";
import type { Pointer } from "../native/pointer.ts";
import { TurnLock } from "../native/turn-lock.ts";
import type { AdapterAnswer, AdapterWorkerInit } from "./adapter-worker.ts";

export interface AdapterLibrary {
  readonly release: string;
  readonly path: string;
}

interface Waiting {
  resolve(adapter: AdapterAnswer): void;
  reject(error: Error): void;
}

export class AdapterLoader {
  /** Held by whoever uses llama.cpp's list of the model's adapters. */
  readonly lock = new TurnLock(0);
  readonly #library: AdapterLibrary;
  readonly #model: Pointer;
  #worker: Worker | null = null;
  #waiting: Waiting | null = null;

  constructor(library: AdapterLibrary, model: Pointer) {
    this.#library = library;
    this.#model = model;
  }

  /** Address of the adapter in a file; 0 where llama.cpp refuses it. One at a time. */
  load(path: string): Promise<AdapterAnswer> {
    this.#worker ??= this.#start();
    const worker = this.#worker;
    // The process lives on for answers alone.
    worker.ref();
    return new Promise<AdapterAnswer>((resolve, reject) => {
      this.#waiting = { resolve, reject };
      worker.postMessage(path);
    }).finally(() => worker.unref());
  }

  /** Ends the thread, which loads nothing when this returns, and never will. */
  dispose(): void {
    this.lock.acquire();
    void this.#worker?.terminate();
  }

  #start(): Worker {
    const { release, path: library } = this.#library;
    const workerData: AdapterWorkerInit = {
      release,
      library,
      model: koffi.address(this.#model),
      lock: this.lock.memory,
    };
    const worker = new Worker(new URL("./adapter-worker.js", import.meta.url), {
      workerData,
      resourceLimits: { maxYoungGenerationSizeMb: 2 },
    });
    let reason = "it ended";
    worker.on("message", (adapter: AdapterAnswer) => this.#waiting?.resolve(adapter));
    worker.on("error", (error: Error) => {
      reason = error.message;
    });
    worker.once("exit", () => {
      this.#worker = null;
      this.#waiting?.reject(new Error(`the thread that loads adapters is gone: ${reason}`));
    });
    return worker;
  }
}
