// Encoder thread: the handle of a thread that computes the embeddings of images or audio (encoder-loop.ts). It sends one input at a time to
// the thread, in the order of the calls.
import { Worker } from "node:worker_threads";
import { fromErrorRecord, ServerError } from "../../runtime/errors.ts";
import type { EncoderReport, EncoderStart } from "./encoder-loop.ts";

/** `Input`: type of the data that the thread encodes. */
export class EncoderThread<Input> {
  readonly #worker: Worker;
  /** Settles when the most recently requested input is computed. */
  #last: Promise<unknown> = Promise.resolve();
  readonly #ended: Promise<ServerError>;
  /** Why the thread has ended; null = it is running. */
  #error: ServerError | null = null;
  /** Rejects the promise that waits for the next report. */
  #fail: (error: ServerError) => void = () => {};

  private constructor(start: EncoderStart, module: URL) {
    this.#worker = new Worker(module, { workerData: start });
    let cause: Error | undefined;
    this.#worker.on("error", (error: Error) => {
      cause = error;
    });
    this.#ended = new Promise((resolve) => {
      this.#worker.once("exit", (code) => {
        const reason = cause?.message ?? `code ${code}`;
        const message = `the thread that encodes images or audio ended: ${reason}`;
        this.#error = new ServerError("model_failed", message, { cause });
        resolve(this.#error);
        this.#fail(this.#error);
      });
    });
  }

  /**
   * Starts the thread and loads the projector file. `module`: entry point of the thread, which runs the encoder loop. Throws
   * `model_file_invalid` or `unsupported`.
   */
  static async start<Input>(start: EncoderStart, module: URL): Promise<EncoderThread<Input>> {
    const thread = new EncoderThread<Input>(start, module);
    try {
      await thread.#report();
    } catch (error) {
      await thread.dispose();
      throw error;
    }
    return thread;
  }

  /** Resolves with the error when the thread has ended. */
  get ended(): Promise<ServerError> {
    return this.#ended;
  }

  /** Returns the embeddings of an input. `isWanted` is called before they are computed; if it returns false, the result is null. */
  async encode(input: Input, isWanted: () => boolean): Promise<Float32Array | null> {
    const before = this.#last;
    const computed = before.then(async () => {
      if (!isWanted()) return null;
      const report = this.#report();
      this.#worker.postMessage(input);
      return await report;
    });
    this.#last = computed.catch(() => undefined);
    return await computed;
  }

  async dispose(): Promise<void> {
    await this.#worker.terminate();
  }

  async #report(): Promise<Float32Array | null> {
    if (this.#error !== null) throw this.#error;
    // Promise.race with #ended would keep each report in memory until the thread ends.
    const report = await new Promise<EncoderReport>((resolve, reject) => {
      this.#fail = reject;
      this.#worker.once("message", resolve);
    });
    if ("error" in report) throw fromErrorRecord(report.error);
    return report.embeddings;
  }
}
