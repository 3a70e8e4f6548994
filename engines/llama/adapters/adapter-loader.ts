// Adapter loader: the thread that loads a model's adapters, seen from outside. The first load starts it; loads run one
// after another. If the thread ends, its current load is rejected, and the next load starts a new thread.
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
  /** Held while llama.cpp's list of the model's adapters is read or changed. */
  readonly lock = new TurnLock(0);
  readonly #library: AdapterLibrary;
  readonly #model: Pointer;
  #worker: Worker | null = null;
  #waiting: Waiting | null = null;

  constructor(library: AdapterLibrary, model: Pointer) {
    this.#library = library;
    this.#model = model;
  }

  /** Address of the adapter in a file; 0 if llama.cpp refuses it. One call at a time. */
  load(path: string): Promise<AdapterAnswer> {
    this.#worker ??= this.#start();
    const worker = this.#worker;
    // The thread keeps the process alive only while an answer is outstanding.
    worker.ref();
    return new Promise<AdapterAnswer>((resolve, reject) => {
      this.#waiting = { resolve, reject };
      worker.postMessage(path);
    }).finally(() => worker.unref());
  }

  /** Ends the thread: no load is running when this returns, and none starts later. */
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
