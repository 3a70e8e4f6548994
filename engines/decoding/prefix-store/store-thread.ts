// Store thread: the model thread's handle to the worker thread of the prefix store. It starts the worker, sends tasks
// and returns the answers, which arrive in the order of the tasks. Used by prefix-store.ts. After the worker has
// ended, every answer is an error with the reason.
import { Worker } from "node:worker_threads";
import { fromErrorRecord } from "../../../runtime/errors.ts";
import type { ListedPrefix } from "./prefix-list.ts";
import type { StoreAnswer, StoreInit, StoreTask } from "./store-worker.ts";

export class StoreThread {
  readonly #worker: Worker;
  readonly #waiting: ((answer: StoreAnswer) => void)[] = [];
  /** The answer to all tasks after the worker has ended, with the reason; null while it runs. */
  #ended: StoreAnswer | null = null;

  private constructor(init: StoreInit) {
    // Large data is in buffers outside of the JavaScript heap, so a small young generation is enough.
    this.#worker = new Worker(new URL("./store-worker.js", import.meta.url), {
      workerData: init,
      resourceLimits: { maxYoungGenerationSizeMb: 2 },
    });
    this.#worker.on("message", (answer: StoreAnswer) => this.#settle(answer));
    let reason = "it ended";
    this.#worker.on("error", (error: Error) => {
      reason = error.message;
    });
    this.#worker.once("exit", () => {
      this.#ended = { kind: "failed", reason: `the thread of the prefix store has ended: ${reason}` };
      while (this.#waiting.length > 0) this.#settle(this.#ended);
    });
  }

  /** Starts the worker, which opens the folder. Throws config_invalid if the folder cannot be used. */
  static async start(init: StoreInit): Promise<{ thread: StoreThread; prefixes: readonly ListedPrefix[] }> {
    const thread = new StoreThread(init);
    const answer = await thread.#answer();
    if (answer.kind === "opened") return { thread, prefixes: answer.prefixes };
    await thread.stop();
    if (answer.kind === "refused") throw fromErrorRecord(answer.error);
    throw new Error(answer.kind === "failed" ? answer.reason : `the store's thread began with "${answer.kind}"`);
  }

  /**
   * Sends a task and returns its answer. Never rejects. The buffers in `moved` are transferred: the
   * caller must not use them any more.
   */
  ask(task: StoreTask, moved: readonly ArrayBuffer[] = []): Promise<StoreAnswer> {
    if (this.#ended) return Promise.resolve(this.#ended);
    this.#worker.postMessage(task, moved);
    return this.#answer();
  }

  /** Ends the worker at once. */
  async stop(): Promise<void> {
    await this.#worker.terminate();
  }

  /**
   * Returns the answer to the task that was sent last. The worker keeps the process alive only while answers are
   * pending.
   */
  #answer(): Promise<StoreAnswer> {
    this.#worker.ref();
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #settle(answer: StoreAnswer): void {
    this.#waiting.shift()?.(answer);
    if (this.#waiting.length === 0) this.#worker.unref();
  }
}
