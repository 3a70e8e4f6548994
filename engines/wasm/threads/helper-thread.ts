// Helper thread: the leader's handle of another compute thread. The handle listens for the end of the thread from the
// start, so the end and its reason are always reported.
import { Worker } from "node:worker_threads";
import { fromErrorRecord, ServerError } from "../../../runtime/errors.ts";
import type { ThreadPages } from "../kv/page-memory.ts";
import type { KernelMemory } from "../load/kernel-module.ts";
import type { WorkerReport, WorkerTask } from "./worker.ts";

export class HelperThread {
  /** Resolves when the thread has ended for any reason. The value is the error that later passes throw. */
  readonly ended: Promise<ServerError>;
  readonly #worker: Worker;

  /**
   * Starts a thread that waits for its task. The thread allocates few objects, so a small JavaScript heap is enough.
   */
  constructor() {
    const worker = new Worker(new URL("./worker.js", import.meta.url), {
      resourceLimits: { maxYoungGenerationSizeMb: 2 },
    });
    let cause: Error | undefined;
    worker.on("error", (error: Error) => {
      cause = error;
    });
    this.ended = new Promise((resolve) => {
      worker.once("exit", (code) => {
        const reason = cause?.message ?? `code ${code}`;
        resolve(new ServerError("model_failed", `a compute thread of the wasm engine ended: ${reason}`, { cause }));
      });
    });
    this.#worker = worker;
  }

  /** Loads the thread's part of the model. Returns its KV pages and its memory. Throws the thread's error. */
  async load(task: WorkerTask): Promise<{ readonly pages: ThreadPages; readonly memory: KernelMemory }> {
    const reported = new Promise<WorkerReport>((resolve) => this.#worker.once("message", resolve));
    this.#worker.postMessage(task);
    const report = await Promise.race([reported, this.ended]);
    if (report instanceof ServerError) throw report;
    if (!report.ready) throw fromErrorRecord(report.error);
    return report;
  }

  async terminate(): Promise<void> {
    await this.#worker.terminate();
  }
}
