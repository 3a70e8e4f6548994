// Entry point of the adapter loading thread. The thread reads each file, loads the adapter with llama.cpp, and replies
// with the adapter's address. Loading an adapter is the only way in which it uses the model. No load may run while a
// pass reads llama.cpp's list of the model's adapters.
import { closeSync, openSync, readSync } from "node:fs";
import { parentPort, workerData } from "node:worker_threads";
import koffi from "koffi";
import { bindingOf } from "../native/abi.ts";
import type { Pointer } from "../native/pointer.ts";
import { TurnLock } from "../native/turn-lock.ts";

/** Data passed to the thread at its start. */
export interface AdapterWorkerInit {
  readonly release: string;
  /** Path of the llama.cpp library that the process has already mapped. */
  readonly library: string;
  readonly model: bigint;
  readonly lock: SharedArrayBuffer;
}

/** Native address of the adapter; 0 if it could not be loaded. */
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
  // The thread replies only after load() has released the lock, because the receiver may assume that the lock is free.
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

/** Reads the file into the page cache, so that the load does not hold the lock while it waits for the disk. */
function readAhead(path: string): void {
  let file: number;
  try {
    file = openSync(path, "r");
  } catch {
    // The error is ignored, because the load will fail too and report llama.cpp's own error.
    return;
  }
  try {
    const buffer = new Uint8Array(readBytes);
    while (readSync(file, buffer) > 0);
  } catch {
    // A read error is ignored, because the load will report it.
  } finally {
    closeSync(file);
  }
}
