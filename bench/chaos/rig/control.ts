// Module that a server of the chaos suite loads before its own code (`node --import`). Node loads it on every thread, and in the
// server's own Node processes. It carries out orders of the rig: on the server's main thread, which receives them, or on the
// threads of a name. Node's inspector could do the same, but a process can crash if a thread ends while its inspector is in use.

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

/** Reply to a message: `heapBytes` for a question, 0 for an order, which the main thread has passed on. */
export interface Reply {
  readonly number: number;
  readonly heapBytes: number;
}

const channel = new BroadcastChannel("chaos orders");
// Neither the channel nor the connection to the rig keeps a thread alive.
channel.unref();

if (isMainThread) {
  // The server's own Node processes load this module too, and talk to the server on their channel.
  if (/troupe\.mjs$/.test(process.argv[1] ?? "")) {
    process.on("message", ({ number, order }: Order) => {
      const heapBytes = "thread" in order ? passedOn(order) : heapUsed(order);
      process.send?.({ number, heapBytes } satisfies Reply);
    });
    process.channel?.unref();
  }
} else {
  const { name } = (workerData ?? {}) as { readonly name?: string };
  channel.onmessage = ({ data }) => {
    const { thread, blockMs } = data as ThreadOrder;
    if (thread !== name) return;
    if (blockMs === null) process.exit(1);
    const end = performance.now() + blockMs;
    while (performance.now() < end);
  };
}

function passedOn(order: ThreadOrder): number {
  channel.postMessage(order);
  return 0;
}

function heapUsed({ snapshot }: HeapQuestion): number {
  globalThis.gc?.();
  if (snapshot !== null) writeHeapSnapshot(snapshot);
  return process.memoryUsage().heapUsed;
}
