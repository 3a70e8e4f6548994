// The entry of the thread that loads adapters, so that steps go on meanwhile: it reads what a prepared adapter is (or several
// that are stacked into one), and once it is told where in the compute threads' memories it goes, packs it there. One adapter
// at a time; it ends with its model.
import { parentPort, workerData } from "node:worker_threads";
import { type ErrorCode, type ErrorRecord, ServerError, toErrorRecord } from "../../../runtime/errors.ts";
import { divideGraph, type PartitionPlan } from "../plan/partition-plan.ts";
import { type AdapterFile, loadFailed, ranksOf, readAdapterFile, stackedRanks } from "./file.ts";
import { adapterBytes } from "./layout.ts";
import { type AdapterTarget, packAdapter } from "./packing.ts";
import { adapterPlaces } from "./places.ts";

export type LoaderTask =
  | { readonly type: "measure"; readonly paths: readonly string[] }
  | { readonly type: "pack"; readonly targets: readonly AdapterTarget[] };

/** The answer to a task: the sizes of the adapter, or what went wrong. */
export type LoaderAnswer = AdapterSizes | ErrorRecord;

export interface AdapterSizes {
  /** What the adapter takes in each thread's memory. */
  readonly blockBytes: number;
  /** Of its files' tensors. */
  readonly tensorBytes: number;
}

if (!parentPort) throw new Error("the loader of adapters is a worker");
const port = parentPort;
const ownCodes: readonly ErrorCode[] = ["lora_device_load_failed", "invalid_lora_adapter"];
const blueprint = workerData as PartitionPlan;
const places = adapterPlaces(divideGraph(blueprint));
let measured: readonly AdapterFile[] | null = null;

port.on("message", (task: LoaderTask) => {
  void carryOut(task).then(
    (answer) => port.postMessage(answer),
    (error: unknown) => port.postMessage(toErrorRecord(asLoadFailure(error))),
  );
});

async function carryOut(task: LoaderTask): Promise<AdapterSizes> {
  if (task.type === "measure") {
    measured = await Promise.all(task.paths.map((path) => readAdapterFile(path, places, blueprint.adapterRank)));
    return sizesOf(measured);
  }
  if (!measured) throw loadFailed("was not loaded: the thread that had begun with it ended");
  packAdapter(measured, places, sizesOf(measured).blockBytes, task.targets);
  return sizesOf(measured);
}

function sizesOf(files: readonly AdapterFile[]): AdapterSizes {
  return {
    blockBytes: adapterBytes(places, stackedRanks(files.map(ranksOf)), blueprint.threads),
    tensorBytes: files.reduce((sum, { bytes }) => sum + bytes, 0),
  };
}

/** Whatever it is, the adapter was not loaded and the model goes on. */
function asLoadFailure(error: unknown): ServerError {
  if (error instanceof ServerError && ownCodes.includes(error.code)) return error;
  return loadFailed(`cannot be read: ${error instanceof Error ? error.message : String(error)}`, error);
}
