// The entry of the thread that loads a model's adapters: reads each file, has llama.cpp load it, and answers with its address.
// Never touches the model otherwise. It must not load while a pass reads llama.cpp's list of the model's adapters.
import { closeSync, openSync, readSync } from "node:fs";
import { parentPort, workerData } from "node:worker_threads";
import koffi from "koffi";
import { bindingOf } from "../native/abi.ts";
import type { Pointer } from "../native/pointer.ts";
import { TurnLock } from "../native/turn-lock.ts";

/** What the thread is started with. */
export interface AdapterWorkerInit {
  readonly release: string;
  /** Path of the library that the process has mapped. */
  readonly library: string;
  readonly model: bigint;
  readonly lock: SharedArrayBuffer;
}

/** Address of the adapter; 0 where it could not be loaded. */
export type AdapterAnswer = bigint;

const readBytes = 2 ** 20;

if (!parentPort) throw new Error("the thread that loads adapters is a worker");
const port = parentPort;
const { release, library, model, lock: memory } = workerData as AdapterWorkerInit;
const functions = bindingOf(release)(koffi.load(library));
const lock = new TurnLock(1, memory);

port.on("message", (path: string) => {
  readAhead(path);
  const adapter = load(path);
  // Whoever gets the answer may count on the lock's being free.
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

/** So that nobody waits for the disk while the lock is held. */
function readAhead(path: string): void {
  let file: number;
  try {
    file = openSync(path, "r");
  } catch {
    // llama.cpp says what is wrong with it.
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
