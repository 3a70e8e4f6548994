// Entry of a worker thread of a conversion: writes one chunk after another and reports each.
import { parentPort, workerData } from "node:worker_threads";
import { toErrorRecord } from "../../../runtime/errors.ts";
import { ChunkWriter } from "./chunk-writer.ts";
import type { Chunk, ConversionTask, WorkerReport } from "./messages.ts";

const port = parentPort;
if (port === null) throw new Error("this module runs in a worker thread");
const report = (message: WorkerReport) => port.postMessage(message);

try {
  const writer = new ChunkWriter(workerData as ConversionTask);
  port.on("message", (chunk: Chunk) => {
    try {
      writer.write(chunk);
      report({ done: chunk.index });
    } catch (error) {
      report({ error: toErrorRecord(error) });
    }
  });
} catch (error) {
  report({ error: toErrorRecord(error) });
}
