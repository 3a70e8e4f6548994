// Entry point of a task worker, started by task-worker.ts. Handles commands one at a time, in order of arrival.
import { getHeapStatistics } from "node:v8";
import { parentPort, workerData } from "node:worker_threads";
import { isOutOfDescriptors } from "../descriptor-errors.ts";
import { ServerError, toErrorRecord } from "../errors.ts";
import { threadNumber } from "../thread/system-thread.ts";
import { LoadingFlag } from "./loading-flag.ts";
import type { StartTasks, TaskCommand, TaskHandlers, TaskReport, TaskWorkerData } from "./task.ts";

if (!parentPort) throw new Error("a task worker is a worker thread");
const port = parentPort;
const { module, init, loading } = workerData as TaskWorkerData;
const flag = new LoadingFlag(loading);
/** Whether a command is being handled. */
let isBusy = false;
const load = async (url: string): Promise<unknown> => {
  try {
    return await flag.during(() => import(url));
  } catch (error) {
    // An import between tasks is not worth a new worker: while there are no file descriptors, it would fail there too.
    if (isBusy) report({ type: "broken" });
    throw error;
  }
};
const { start } = (await load(module)) as { readonly start: StartTasks<unknown> };
const handlers = await start(init, load);
let last: Promise<void> = Promise.resolve();

port.on("message", (command: TaskCommand) => {
  last = last.then(() => handle(command, handlers));
});
report({ type: "ready", thread: threadNumber() });

async function handle(command: TaskCommand, handlers: TaskHandlers): Promise<void> {
  isBusy = true;
  try {
    await carryOut(command, handlers);
  } finally {
    isBusy = false;
  }
}

async function carryOut(command: TaskCommand, handlers: TaskHandlers): Promise<void> {
  switch (command.type) {
    case "share":
      await share(command.key, command.value, handlers);
      break;
    case "unshare":
      handlers.unshare(command.key);
      break;
    case "run":
      await run(command.kind, command.input, handlers);
      break;
    default:
      command satisfies never;
  }
}

async function share(key: string, value: unknown, handlers: TaskHandlers): Promise<void> {
  try {
    const answer = await handlers.share(key, value);
    report({ type: "shared", key, value: answer, heapBytes: heapBytes() });
  } catch (error) {
    report({ type: "not-shared", key, error: toErrorRecord(isOutOfDescriptors(error) ? clientError(error) : error) });
  }
}

async function run(kind: string, input: unknown, handlers: TaskHandlers): Promise<void> {
  try {
    const { value, transfer } = await handlers.run(kind, input, (phase) => report({ type: "phase", phase }));
    port.postMessage({ type: "done", value, heapBytes: heapBytes() } satisfies TaskReport, [...(transfer ?? [])]);
  } catch (error) {
    report({ type: "failed", error: toErrorRecord(clientError(error)), heapBytes: heapBytes() });
  }
}

/** Returns the error for the client, without the details of an internal error. */
function clientError(error: unknown): ServerError {
  if (error instanceof ServerError) return error;
  // A RangeError means that a request exceeded a limit of JavaScript on call depth or text length.
  if (error instanceof RangeError) {
    const message = `the request is too large or too deeply nested to be read (${error.message}); make it smaller`;
    return new ServerError("unsupported", message, { cause: error });
  }
  if (isOutOfDescriptors(error)) {
    const message = "the server has no free file descriptor to read a file; send the request again";
    return new ServerError("storage_unavailable", message, { cause: error });
  }
  process.stderr.write(`a task failed: ${error instanceof Error ? error.stack : String(error)}\n`);
  return new ServerError("internal", "internal error while the request was read; details are in the server's log");
}

function heapBytes(): number {
  const { total_heap_size, external_memory } = getHeapStatistics();
  return total_heap_size + external_memory;
}

function report(message: TaskReport): void {
  port.postMessage(message);
}
