// Owns the store's thread, from outside: starts it, sends it tasks and hands back its answers, which come in the order of the
// tasks. Used by prefix-store.ts. A thread that has ended answers everything with why.
import { Worker } from "node:worker_threads";
import { fromErrorRecord } from "../../../runtime/errors.ts";
import type { ListedPrefix } from "./prefix-list.ts";
import type { StoreAnswer, StoreInit, StoreTask } from "./store-worker.ts";

export class StoreThread {
  readonly #worker: Worker;
  readonly #waiting: ((answer: StoreAnswer) => void)[] = [];
  /** Why there will be no more answers. */
  #ended: StoreAnswer | null = null;

  private constructor(init: StoreInit) {
    // What it handles lies outside of its heap.
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
      this.#ended = { kind: "failed", reason: `the thread that reads and writes is gone: ${reason}` };
      while (this.#waiting.length > 0) this.#settle(this.#ended);
    });
  }

  /** Opens the folder. Throws config_invalid where it cannot be used. */
  static async start(init: StoreInit): Promise<{ thread: StoreThread; prefixes: readonly ListedPrefix[] }> {
    const thread = new StoreThread(init);
    const answer = await thread.#answer();
    if (answer.kind === "opened") return { thread, prefixes: answer.prefixes };
    await thread.stop();
    if (answer.kind === "refused") throw fromErrorRecord(answer.error);
    throw new Error(answer.kind === "failed" ? answer.reason : `the store's thread began with "${answer.kind}"`);
  }

  /** Never rejects. What is in `moved` is not to be used any more. */
  ask(task: StoreTask, moved: readonly ArrayBuffer[] = []): Promise<StoreAnswer> {
    if (this.#ended) return Promise.resolve(this.#ended);
    this.#worker.postMessage(task, moved);
    return this.#answer();
  }

  /** Ends it, whatever it is doing. */
  async stop(): Promise<void> {
    await this.#worker.terminate();
  }

  /** The next answer that nobody waits for yet. The process lives on for answers alone. */
  #answer(): Promise<StoreAnswer> {
    this.#worker.ref();
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #settle(answer: StoreAnswer): void {
    this.#waiting.shift()?.(answer);
    if (this.#waiting.length === 0) this.#worker.unref();
  }
}
