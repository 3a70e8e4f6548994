// Module that a server of the chaos suite loads before its own code (`node --import`), on its main thread and on its worker threads. It
// carries out orders of the rig: on the main thread, which receives them, or on the threads of a name. Node's inspector could do the same,
// but a server can crash when a connection to its inspector ends.

import { writeHeapSnapshot } from "node:v8";
import { BroadcastChannel, isMainThread, workerData } from "node:worker_threads";

/** Order for the threads with this name: to end as after a crash, or not to respond for a time in ms. */
export interface ThreadOrder {
  readonly thread: string;
  readonly blockMs: number | null;
}

/** Question to the main thread: the bytes that its heap uses after a garbage collection. It can write a snapshot to a path. */
export interface HeapQuestion {
  readonly snapshot: string | null;
}

/** Message from the rig. The reply carries its number. */
export interface Order {
  readonly number: number;
  readonly order: ThreadOrder | HeapQuestion;
}

/** Reply to a message. `done`: the heap's bytes for a question; for an order, 1 if a thread with its name has started, else 0. */
export interface Reply {
  readonly number: number;
  readonly done: number;
}

/** Message between threads: an order, or the name of a thread that has started. */
type ThreadMessage = ThreadOrder | { readonly started: string };

const channel = new BroadcastChannel("chaos orders");
// Neither the channel nor the connection to the rig keeps a thread alive.
channel.unref();
/** Names of the threads that have started. */
const threads = new Set<string>();

if (isMainThread) {
  channel.onmessage = ({ data }) => {
    const message = data as ThreadMessage;
    if ("started" in message) threads.add(message.started);
  };
  process.on("message", ({ number, order }: Order) => {
    const done = "thread" in order ? passedOn(order) : heapUsed(order);
    process.send?.({ number, done } satisfies Reply);
  });
  process.channel?.unref();
} else {
  const name = threadName();
  channel.postMessage({ started: name } satisfies ThreadMessage);
  channel.onmessage = ({ data }) => {
    const message = data as ThreadMessage;
    if ("started" in message || message.thread !== name) return;
    if (message.blockMs === null) process.exit(1);
    const end = performance.now() + message.blockMs;
    while (performance.now() < end);
  };
}

/** Returns the name of this worker thread. Places have it in their data; text workers are known by their module. */
function threadName(): string {
  const { name, module } = (workerData ?? {}) as { readonly name?: string; readonly module?: string };
  return name ?? (module?.includes("/text-tasks/") ? "text" : "other");
}

function passedOn(order: ThreadOrder): number {
  channel.postMessage(order);
  return threads.has(order.thread) ? 1 : 0;
}

function heapUsed({ snapshot }: HeapQuestion): number {
  globalThis.gc?.();
  if (snapshot !== null) writeHeapSnapshot(snapshot);
  return process.memoryUsage().heapUsed;
}
