// Adapter loader: the thread that loads adapters, seen from the model's thread. Started with the first adapter, and
// restarted if it has ended.
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
   * Reads the headers of prepared adapters that are stacked into one. Throws invalid_lora_adapter if they change a
   * matrix without a site, and lora_device_load_failed; so does pack().
   */
  measure(paths: readonly string[]): Promise<AdapterSizes> {
    return this.#ask({ type: "measure", paths });
  }

  /** Packs the adapter that was measured last into all threads' memories. */
  async pack(targets: readonly AdapterTarget[]): Promise<void> {
    await this.#ask({ type: "pack", targets });
  }

  dispose(): void {
    void this.#worker?.terminate();
  }

  /** One task at a time. */
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
    // A failure of this thread must not crash the model's process: the exit event rejects the waiting task.
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
