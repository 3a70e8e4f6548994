// Workers of a conversion: threads that convert chunks in parallel.
import { Worker } from "node:worker_threads";
import { fromErrorRecord, ServerError } from "../../../runtime/errors.ts";
import type { Chunk, ConversionTask, WorkerReport } from "./messages.ts";

/** Number of chunks that are sent to each worker: one in progress and one queued, so that no worker waits for this thread. */
const chunksAhead = 2;

export interface WorkersOptions {
  readonly threads: number;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Converts the chunks on `threads` threads and calls `onDone` with the index of each chunk that was written. Resolves when all chunks are
 * written. Throws the first error of a worker or of `onDone`, and `cancelled` if the signal is aborted, after all threads have ended.
 */
export async function runWorkers(
  task: ConversionTask,
  chunks: readonly Chunk[],
  { threads, signal }: WorkersOptions,
  onDone: (index: number) => Promise<void>,
): Promise<void> {
  const waiting = chunks.values();
  const workers: Worker[] = [];
  const cancelled = new Promise<never>((_, reject) => {
    const cancel = () => reject(new ServerError("cancelled", "the conversion was cancelled"));
    if (signal?.aborted) cancel();
    else signal?.addEventListener("abort", cancel, { once: true });
  });
  const count = Math.min(threads, chunks.length);
  const runs = Array.from({ length: count }, () => {
    const worker = new Worker(new URL("./worker.js", import.meta.url), { workerData: task });
    workers.push(worker);
    return runWorker(worker, waiting, onDone);
  });
  try {
    await Promise.race([Promise.all(runs), cancelled]);
  } finally {
    await Promise.all(workers.map((worker) => worker.terminate()));
  }
}

function runWorker(worker: Worker, waiting: Iterator<Chunk>, onDone: (index: number) => Promise<void>): Promise<void> {
  return new Promise<void>((resolve, reject) => {
    let inWork = 0;
    const give = () => {
      const { value: chunk, done } = waiting.next();
      if (done) return;
      inWork++;
      worker.postMessage(chunk);
    };
    const finish = async (report: WorkerReport) => {
      if ("error" in report) throw fromErrorRecord(report.error);
      give();
      await onDone(report.done);
      inWork--;
      if (inWork === 0) resolve();
    };
    const failed = (reason: string, cause?: Error) =>
      reject(new ServerError("internal", `a thread that converts the model ended: ${reason}`, { cause }));
    worker.on("message", (report: WorkerReport) => void finish(report).catch(reject));
    worker.once("error", (cause) => failed(cause.message, cause));
    worker.once("exit", (code) => failed(`code ${code}`));
    for (let i = 0; i < chunksAhead; i++) give();
    if (inWork === 0) resolve();
  });
}
