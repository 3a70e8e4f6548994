// Fit check: whether the wasm engine can run a model file. It reads the file's header, never its weights. It runs when
// the engine is chosen, and again at load.
import { ServerError } from "../../../runtime/errors.ts";
import { computeThreads } from "../../../runtime/host/cores.ts";
import { totalMemory } from "../../../runtime/host/memory.ts";
import type { ModelSpec } from "../../engine.ts";
import { readTensorTable, type TensorTable } from "../../files/gguf/tensors.ts";
import { findArchitecture } from "../graph/architectures/registry.ts";
import { buildGraph, type Graph } from "../graph/graph.ts";
import { readHyperparameters } from "../graph/hyperparameters.ts";
import type { Hyperparameters } from "../graph/shape.ts";
import { type EncoderLimits, passBytes } from "./encoder-sizes.ts";
import { readFrequencyFactors } from "./weights.ts";

/** Contents of a model file's header, and the graph built from it. */
export interface WasmModelFile {
  readonly table: TensorTable;
  readonly shape: Hyperparameters;
  readonly graph: Graph;
}

/** Minimum context that is useful for a sequence, in tokens. */
const leastContext = 1024;

/**
 * Maximum bytes of weights and KV cache per thread. A WebAssembly memory has at most 4 GiB; the remaining 0.25 GiB are
 * for scratch memory.
 */
const weightBytesPerThread = 3.75 * 2 ** 30;

/** Returns the total size in bytes of all weights in the file. */
export function tensorBytes({ tensors }: TensorTable): number {
  let sum = 0;
  for (const { bytes } of tensors.values()) sum += bytes;
  return sum;
}

/** Returns the maximum size in bytes of the weights and the KV cache for `threads` compute threads. */
export function roomBytes(threads: number): number {
  return threads * weightBytesPerThread;
}

/**
 * Reads a model file's header and builds the graph. Throws `unsupported` if this engine cannot run the model,
 * `model_file_invalid` if no engine can run it.
 */
export async function readModel(path: string): Promise<WasmModelFile> {
  const table = await readTensorTable(path);
  const architecture = findArchitecture(String(table.fields.get("general.architecture")));
  const shape = readHyperparameters(architecture, table, readFrequencyFactors(table));
  return { table, shape, graph: buildGraph(architecture, shape, table) };
}

/**
 * Returns the reason why the weights plus `otherBytes` do not fit in main memory or in the memories of `threads`
 * compute threads; null if they fit. Weights are copied into those memories, so the system cannot drop them from main
 * memory as it can drop a mapped file.
 */
export function memoryRefusal(table: TensorTable, threads: number, otherBytes = 0): string | null {
  const bytes = tensorBytes(table) + otherBytes;
  const need = `its weights and the least to work with take ${gibibytes(bytes)}`;
  if (bytes > totalMemory()) {
    return (
      `${need}, and the main memory of this machine or container is ${gibibytes(totalMemory())}; take a model with fewer ` +
      "bytes per weight (quant), or use --engine llama, which maps the file"
    );
  }
  if (bytes <= roomBytes(threads)) return null;
  return `${need}, and ${threads} compute threads hold ${gibibytes(roomBytes(threads))}; raise threads or use --engine llama`;
}

function gibibytes(bytes: number): string {
  return `${(bytes / 2 ** 30).toFixed(1)} GiB`;
}

/**
 * Returns the reason why the wasm engine cannot run the file with these settings; null if it can. `threads` = 0 means
 * one thread per core. Throws if the file itself is invalid.
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

/**
 * Returns the minimum size in bytes of the KV cache: the requested size if it was requested in bytes or tokens,
 * otherwise the size of a short context for every sequence. Elements are assumed to have 16 bits.
 */
function leastKvBytes(
  { maxSequences, kvBudget }: Pick<ModelSpec, "maxSequences" | "kvBudget">,
  { layers, kvHeads, headLength }: Hyperparameters,
): number {
  if (kvBudget !== null && "bytes" in kvBudget) return kvBudget.bytes;
  const tokens = kvBudget !== null && "tokens" in kvBudget ? kvBudget.tokens : leastContext * maxSequences;
  return tokens * layers * 2 * kvHeads * headLength * 2;
}
