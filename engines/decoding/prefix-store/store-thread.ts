// Store thread, from outside: starts it, sends it tasks and returns its answers, which come in the order of the tasks.
// Used by prefix-store.ts. After its end every answer is the reason.
import { Worker } from "node:worker_threads";
import { fromErrorRecord } from "../../../runtime/errors.ts";
import type { ListedPrefix } from "./prefix-list.ts";
import type { StoreAnswer, StoreInit, StoreTask } from "./store-worker.ts";

export class StoreThread {
  readonly #worker: Worker;
  readonly #waiting: ((answer: StoreAnswer) => void)[] = [];
  /** The reason for its end. */
  #ended: StoreAnswer | null = null;

  private constructor(init: StoreInit) {
    // Its buffers lie outside of its heap.
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

  /** Opens the folder. Throws config_invalid if it cannot be used. */
  static async start(init: StoreInit): Promise<{ thread: StoreThread; prefixes: readonly ListedPrefix[] }> {
    const thread = new StoreThread(init);
    const answer = await thread.#answer();
    if (answer.kind === "opened") return { thread, prefixes: answer.prefixes };
    await thread.stop();
    if (answer.kind === "refused") throw fromErrorRecord(answer.error);
    throw new Error(answer.kind === "failed" ? answer.reason : `the store's thread began with "${answer.kind}"`);
  }

  /** Never rejects. The caller must not use the buffers in `moved` any more. */
  ask(task: StoreTask, moved: readonly ArrayBuffer[] = []): Promise<StoreAnswer> {
    if (this.#ended) return Promise.resolve(this.#ended);
    this.#worker.postMessage(task, moved);
    return this.#answer();
  }

  /** Ends it at once. */
  async stop(): Promise<void> {
    await this.#worker.terminate();
  }

  /** The next answer without a waiter. Only pending answers keep the process alive. */
  #answer(): Promise<StoreAnswer> {
    this.#worker.ref();
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #settle(answer: StoreAnswer): void {
    this.#waiting.shift()?.(answer);
    if (this.#waiting.length === 0) this.#worker.unref();
  }
}
