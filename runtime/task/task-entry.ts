// The first lines that run on a task worker. Started by task-worker.ts, imported by nobody. Orders are carried out one after
// another, in the order they came.
import { getHeapStatistics } from "node:v8";
import { parentPort, workerData } from "node:worker_threads";
import { ServerError, toErrorRecord } from "../errors.ts";
import { threadNumber } from "../thread/system-thread.ts";
import type { StartTasks, TaskHandlers, TaskOrder, TaskReport, TaskWorkerData } from "./task.ts";

if (!parentPort) throw new Error("a task worker is a worker thread");
const port = parentPort;
const { module, init } = workerData as TaskWorkerData;
const { start } = (await import(module)) as { readonly start: StartTasks<unknown> };
const handlers = await start(init);
let last: Promise<void> = Promise.resolve();

port.on("message", (order: TaskOrder) => {
  last = last.then(() => follow(order, handlers));
});
report({ type: "ready", thread: threadNumber() });

async function follow(order: TaskOrder, handlers: TaskHandlers): Promise<void> {
  switch (order.type) {
    case "share":
      await share(order.key, order.value, handlers);
      break;
    case "unshare":
      handlers.unshare(order.key);
      break;
    case "run":
      await run(order.kind, order.input, handlers);
      break;
    default:
      order satisfies never;
  }
}

async function share(key: string, value: unknown, handlers: TaskHandlers): Promise<void> {
  try {
    const answer = await handlers.share(key, value);
    report({ type: "shared", key, value: answer, heapBytes: heapBytes() });
  } catch (error) {
    report({ type: "not-shared", key, error: toErrorRecord(error) });
  }
}

async function run(kind: string, input: unknown, handlers: TaskHandlers): Promise<void> {
  try {
    const { value, transfer } = await handlers.run(kind, input, (phase) => report({ type: "phase", phase }));
    port.postMessage({ type: "done", value, heapBytes: heapBytes() } satisfies TaskReport, [...(transfer ?? [])]);
  } catch (error) {
    report({ type: "failed", error: toErrorRecord(worded(error)), heapBytes: heapBytes() });
  }
}

/** The error that a client is told. Of an internal error it hears only that there was one. */
function worded(error: unknown): ServerError {
  if (error instanceof ServerError) return error;
  // The runtime's limits on the depth of calls and the length of texts: what clients send can meet them.
  if (error instanceof RangeError) {
    const message = `the request is too large or too deeply nested to be read (${error.message}); make it smaller`;
    return new ServerError("unsupported", message, { cause: error });
  }
  process.stderr.write(`a task failed: ${error instanceof Error ? error.stack : String(error)}\n`);
  return new ServerError("internal", "internal error while the request was read; the server's log says more");
}

function heapBytes(): number {
  const { total_heap_size, external_memory } = getHeapStatistics();
  return total_heap_size + external_memory;
}

function report(message: TaskReport): void {
  port.postMessage(message);
}
