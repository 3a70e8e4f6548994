// Owns whether the wasm engine can run a model file: reads its head, never its weights. The choice of engine asks before any
// engine is loaded, and loading asks again.
import { ServerError } from "../../../runtime/errors.ts";
import { computeThreads } from "../../../runtime/host/cores.ts";
import type { ModelSpec } from "../../engine.ts";
import { readTensorTable, type TensorTable } from "../../files/gguf/tensors.ts";
import { findArchitecture } from "../graph/architectures/registry.ts";
import { buildGraph, type Graph } from "../graph/graph.ts";
import { readHyperparameters } from "../graph/hyperparameters.ts";
import type { Hyperparameters } from "../graph/shape.ts";
import { type EncoderLimits, passBytes } from "./encoder-sizes.ts";
import { readFrequencyFactors } from "./weights.ts";

/** What a model file says of the model. */
export interface WasmModelFile {
  readonly table: TensorTable;
  readonly shape: Hyperparameters;
  readonly graph: Graph;
}

/** Tokens of KV cache a sequence needs to be of any use. */
const leastContext = 1024;

/** A WebAssembly memory ends at 4 GiB; a part of it is scratch. */
const weightBytesPerThread = 3.75 * 2 ** 30;

/** Bytes of all weights, as the file has them. */
export function tensorBytes({ tensors }: TensorTable): number {
  let sum = 0;
  for (const { bytes } of tensors.values()) sum += bytes;
  return sum;
}

/** Bytes of weights and KV cache that so many compute threads can hold. */
export function roomBytes(threads: number): number {
  return threads * weightBytesPerThread;
}

/** Throws `unsupported` where the engine cannot run the model, `model_file_invalid` where nobody can. */
export async function readModel(path: string): Promise<WasmModelFile> {
  const table = await readTensorTable(path);
  const architecture = findArchitecture(String(table.fields.get("general.architecture")));
  const shape = readHyperparameters(architecture, table, readFrequencyFactors(table));
  return { table, shape, graph: buildGraph(architecture, shape, table) };
}

/** Why the weights do not fit the memories of so many compute threads beside `otherBytes`; null where they do. */
export function memoryRefusal(table: TensorTable, threads: number, otherBytes = 0): string | null {
  const bytes = tensorBytes(table) + otherBytes;
  if (bytes <= roomBytes(threads)) return null;
  const need = (bytes / 2 ** 30).toFixed(1);
  return (
    `its weights and the least to work with take ${need} GiB, and ${threads} compute threads hold ` +
    `${(roomBytes(threads) / 2 ** 30).toFixed(1)} GiB; raise threads or use --engine llama`
  );
}

/**
 * Why the wasm engine cannot run a file as `spec` says (threads 0 = as many as there are cores), or null. Throws what is
 * wrong with a file that nobody can run.
 */
export async function wasmRefusal(
  spec: Pick<ModelSpec, "path" | "threads" | "kvBudget"> & EncoderLimits,
): Promise<string | null> {
  try {
    const { table, shape, graph } = await readModel(spec.path);
    const threads = computeThreads(spec.threads);
    const otherBytes = graph.isEncoder ? passBytes(spec, shape, threads) : leastKvBytes(spec, shape);
    return memoryRefusal(table, threads, otherBytes);
  } catch (error) {
    if (error instanceof ServerError && error.code === "unsupported") return error.message;
    throw error;
  }
}

/** The KV cache that was asked for, or the least that is of use: a short context for every sequence, in 16 bits. */
function leastKvBytes(
  { maxSequences, kvBudget }: Pick<ModelSpec, "maxSequences" | "kvBudget">,
  { layers, kvHeads, headLength }: Hyperparameters,
): number {
  if (kvBudget !== null && "bytes" in kvBudget) return kvBudget.bytes;
  const tokens = kvBudget !== null && "tokens" in kvBudget ? kvBudget.tokens : leastContext * maxSequences;
  return tokens * layers * 2 * kvHeads * headLength * 2;
}
