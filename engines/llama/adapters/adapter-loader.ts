// Adapter loader: controls the thread that loads a model's adapters. The first load starts the thread, and loads run
// one after another. If the thread ends, its current load is rejected, and the next load starts a new thread.
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
  /** Lock on llama.cpp's list of the model's adapters; held while the list is read or changed. */
  readonly lock = new TurnLock(0);
  readonly #library: AdapterLibrary;
  readonly #model: Pointer;
  #worker: Worker | null = null;
  #waiting: Waiting | null = null;

  constructor(library: AdapterLibrary, model: Pointer) {
    this.#library = library;
    this.#model = model;
  }

  /** Loads the adapter in a file and returns its native address; 0 if llama.cpp rejects it. Only one call at a time. */
  load(path: string): Promise<AdapterAnswer> {
    this.#worker ??= this.#start();
    const worker = this.#worker;
    // The thread keeps the process alive only while a reply is pending.
    worker.ref();
    return new Promise<AdapterAnswer>((resolve, reject) => {
      this.#waiting = { resolve, reject };
      worker.postMessage(path);
    }).finally(() => worker.unref());
  }

  /** Ends the thread. After this call no load is running, and none can start. */
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
    let reason = "no reason given";
    worker.on("message", (adapter: AdapterAnswer) => this.#waiting?.resolve(adapter));
    worker.on("error", (error: Error) => {
      reason = error.message;
    });
    worker.once("exit", () => {
      this.#worker = null;
      this.#waiting?.reject(new Error(`the adapter loading thread ended: ${reason}`));
    });
    return worker;
  }
}
