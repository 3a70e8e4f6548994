// The entry of the thread that loads adapters, so that steps go on meanwhile: it reads what a prepared adapter is, and once
// it is told where in the compute threads' memories it goes, packs it there. One adapter at a time; it ends with its model.
import { closeSync, openSync } from "node:fs";
import { parentPort, workerData } from "node:worker_threads";
import { type ErrorRecord, ServerError, toErrorRecord } from "../../../runtime/errors.ts";
import { type Blueprint, divideGraph } from "../blueprint.ts";
import { type AdapterFile, loadFailed, ranksOf, readAdapterFile } from "./file.ts";
import { adapterBytes } from "./layout.ts";
import { type AdapterTarget, packAdapter } from "./packing.ts";
import { adapterPlaces } from "./places.ts";

export type LoaderTask =
  | { readonly type: "measure"; readonly path: string }
  | { readonly type: "pack"; readonly targets: readonly AdapterTarget[] };

/** The answer to a task: the sizes of the adapter, or what went wrong. */
export type LoaderAnswer = AdapterSizes | ErrorRecord;

export interface AdapterSizes {
  /** What the adapter takes in each thread's memory. */
  readonly blockBytes: number;
  /** Of the file's tensors. */
  readonly tensorBytes: number;
}

if (!parentPort) throw new Error("the loader of adapters is a worker");
const port = parentPort;
const blueprint = workerData as Blueprint;
const places = adapterPlaces(divideGraph(blueprint));
let measured: AdapterFile | null = null;

port.on("message", (task: LoaderTask) => {
  void carryOut(task).then(
    (answer) => port.postMessage(answer),
    (error: unknown) => port.postMessage(toErrorRecord(asLoadFailure(error))),
  );
});

async function carryOut(task: LoaderTask): Promise<AdapterSizes> {
  if (task.type === "measure") {
    measured = await readAdapterFile(task.path, places, blueprint.adapterRank);
    return sizesOf(measured);
  }
  if (!measured) throw loadFailed("was not loaded: the thread that had begun with it ended");
  pack(measured, task.targets);
  return sizesOf(measured);
}

function sizesOf(file: AdapterFile): AdapterSizes {
  return { blockBytes: adapterBytes(places, ranksOf(file), blueprint.threads), tensorBytes: file.bytes };
}

function pack(file: AdapterFile, targets: readonly AdapterTarget[]): void {
  const descriptor = openSync(file.path, "r");
  try {
    packAdapter(file, places, descriptor, sizesOf(file).blockBytes, targets);
  } finally {
    closeSync(descriptor);
  }
}

/** Whatever it is, the adapter was not loaded and the model goes on. */
function asLoadFailure(error: unknown): ServerError {
  if (error instanceof ServerError && error.code === "lora_device_load_failed") return error;
  return loadFailed(`cannot be read: ${error instanceof Error ? error.message : String(error)}`, error);
}
