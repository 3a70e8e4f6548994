// Adapter loader: controls the thread that loads adapters; used on the model's thread. The first load starts the
// loading thread. If that thread has ended, the next load starts a new one.
import { Worker } from "node:worker_threads";
import { type ErrorRecord, fromErrorRecord } from "../../../runtime/errors.ts";
import type { PartitionPlan } from "../plan/partition-plan.ts";
import { loadFailed } from "./file.ts";
import type { AdapterTarget } from "./packing.ts";
import type { AdapterSizes, LoaderAnswer, LoaderTask } from "./worker.ts";

export class AdapterLoader {
  readonly #plan: PartitionPlan;
  #worker: Worker | null = null;

  constructor(plan: PartitionPlan) {
    this.#plan = plan;
  }

  /**
   * Reads the headers of prepared adapters that will be stacked into one adapter, and returns the sizes of that
   * adapter. Throws invalid_lora_adapter if an adapter changes a matrix that the engine cannot adapt (it belongs to no
   * adapter site), or lora_device_load_failed. pack() throws the same errors.
   */
  measure(paths: readonly string[]): Promise<AdapterSizes> {
    return this.#ask({ type: "measure", paths });
  }

  /** Packs the adapter of the last measure() call into the memories of all threads. */
  async pack(targets: readonly AdapterTarget[]): Promise<void> {
    await this.#ask({ type: "pack", targets });
  }

  dispose(): void {
    void this.#worker?.terminate();
  }

  /** Sends a task to the loader thread and waits for the result. Call it only after the previous task has ended. */
  async #ask(task: LoaderTask): Promise<AdapterSizes> {
    const worker = this.#start();
    const answer = await new Promise<LoaderAnswer>((resolve, reject) => {
      const ended = () => reject(loadFailed("was not loaded: the thread that loads adapters ended"));
      worker.once("exit", ended);
      worker.once("message", (message: LoaderAnswer) => {
        worker.off("exit", ended);
        resolve(message);
      });
      worker.postMessage(task);
    });
    if (isError(answer)) throw fromErrorRecord(answer);
    return answer;
  }

  #start(): Worker {
    if (this.#worker) return this.#worker;
    const worker = new Worker(new URL("./worker.js", import.meta.url), { workerData: this.#plan });
    // The "error" event is ignored, because an uncaught error of the loader thread must not crash the model's process.
    // The "exit" event rejects the waiting task.
    worker.on("error", () => undefined);
    worker.once("exit", () => {
      if (this.#worker === worker) this.#worker = null;
    });
    this.#worker = worker;
    return worker;
  }
}

function isError(answer: LoaderAnswer): answer is ErrorRecord {
  return "code" in answer;
}
