// Adapter worker: entry point of the thread that loads adapters while the model computes. It first determines the size
// of a prepared adapter, or of several adapters stacked into one. After the leader has allocated memory, it packs the
// adapter at the given address in the memories of the compute threads. It processes one adapter at a time, and ends
// when the model is unloaded.
import { parentPort, workerData } from "node:worker_threads";
import { type ErrorCode, type ErrorRecord, ServerError, toErrorRecord } from "../../../runtime/errors.ts";
import { divideGraph, type PartitionPlan } from "../plan/partition-plan.ts";
import { type AdapterFile, loadFailed, ranksOf, readAdapterFile, stackedRanks } from "./file.ts";
import { adapterBytes } from "./layout.ts";
import { type AdapterTarget, packAdapter } from "./packing.ts";
import { adapterSites } from "./sites.ts";

export type LoaderTask =
  | { readonly type: "measure"; readonly paths: readonly string[] }
  | { readonly type: "pack"; readonly targets: readonly AdapterTarget[] };

/** Result of a task: the sizes of the adapter, or the error. */
export type LoaderAnswer = AdapterSizes | ErrorRecord;

export interface AdapterSizes {
  /** Bytes of the adapter in each thread's memory. */
  readonly blockBytes: number;
  /** Bytes of the tensors in the adapter's files. */
  readonly tensorBytes: number;
}

if (!parentPort) throw new Error("the loader of adapters is a worker");
const port = parentPort;
const ownCodes: readonly ErrorCode[] = ["lora_device_load_failed", "invalid_lora_adapter"];
const plan = workerData as PartitionPlan;
const sites = adapterSites(divideGraph(plan));
let measured: readonly AdapterFile[] | null = null;

port.on("message", (task: LoaderTask) => {
  void carryOut(task).then(
    (answer) => port.postMessage(answer),
    (error: unknown) => port.postMessage(toErrorRecord(asLoadFailure(error))),
  );
});

async function carryOut(task: LoaderTask): Promise<AdapterSizes> {
  if (task.type === "measure") {
    measured = await Promise.all(task.paths.map((path) => readAdapterFile(path, sites, plan.adapterRank)));
    return sizesOf(measured);
  }
  if (!measured) throw loadFailed("was not loaded: the thread that had begun with it ended");
  packAdapter(measured, sites, sizesOf(measured).blockBytes, task.targets);
  return sizesOf(measured);
}

function sizesOf(files: readonly AdapterFile[]): AdapterSizes {
  return {
    blockBytes: adapterBytes(sites, stackedRanks(files.map(ranksOf)), plan.threads),
    tensorBytes: files.reduce((sum, { bytes }) => sum + bytes, 0),
  };
}

/** Returns adapter errors unchanged; converts every other error to lora_device_load_failed. The model keeps running. */
function asLoadFailure(error: unknown): ServerError {
  if (error instanceof ServerError && ownCodes.includes(error.code)) return error;
  return loadFailed(`cannot be read: ${error instanceof Error ? error.message : String(error)}`, error);
}
