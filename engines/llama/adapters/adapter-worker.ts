// Entry of the adapter loading thread: reads each file, has llama.cpp load it, and answers with the adapter's address.
// It uses the model for nothing else. A load must not run while a pass reads llama.cpp's list of the model's adapters.
import { closeSync, openSync, readSync } from "node:fs";
import { parentPort, workerData } from "node:worker_threads";
import koffi from "koffi";
import { bindingOf } from "../native/abi.ts";
import type { Pointer } from "../native/pointer.ts";
import { TurnLock } from "../native/turn-lock.ts";

/** Start arguments of the thread. */
export interface AdapterWorkerInit {
  readonly release: string;
  /** Path of the library that the process has mapped. */
  readonly library: string;
  readonly model: bigint;
  readonly lock: SharedArrayBuffer;
}

/** Address of the adapter; 0 if it could not be loaded. */
export type AdapterAnswer = bigint;

const readBytes = 2 ** 20;

if (!parentPort) throw new Error("the adapter loading thread must be a worker thread");
const port = parentPort;
const { release, library, model, lock: memory } = workerData as AdapterWorkerInit;
const functions = bindingOf(release)(koffi.load(library));
const lock = new TurnLock(1, memory);

port.on("message", (path: string) => {
  readAhead(path);
  const adapter = load(path);
  // The receiver of the answer may rely on a free lock.
  port.postMessage((adapter ? koffi.address(adapter) : 0n) satisfies AdapterAnswer);
});

function load(path: string): Pointer {
  lock.acquire();
  try {
    return functions.adapterLoad(model, path);
  } finally {
    lock.release();
  }
}

/** Reads the file into the page cache, so that the load does not wait for the disk while it holds the lock. */
function readAhead(path: string): void {
  let file: number;
  try {
    file = openSync(path, "r");
  } catch {
    // llama.cpp's own error follows.
    return;
  }
  try {
    const buffer = new Uint8Array(readBytes);
    while (readSync(file, buffer) > 0);
  } catch {
    // As above.
  } finally {
    closeSync(file);
  }
}
